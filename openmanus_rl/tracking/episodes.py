"""The `episodes/` of a run: one file for each kind of episodes at one step, written whole, and their index."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.records import Credit, RecordDetails, episode_line
from openmanus_rl.files import write_text
from openmanus_rl.tracking.episode_index import append_to_index, index_lines

Kind = Literal["train", "validation"]


class EpisodeLog:
    """Where a run's episodes are, and what their records say beside what was played."""

    def __init__(self, directory: Path, details: RecordDetails = RecordDetails()) -> None:
        self.directory = directory
        self.details = details
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, kind: Kind, step: int) -> Path:
        return self.directory / f"{kind}_step_{step:06d}.jsonl"

    def write(self, kind: Kind, step: int, episodes: Iterable[Episode], credit: Credit | None = None) -> Path:
        """Write a step's episodes; `credit` says what the trainer made of those it trained on."""
        path = self.path(kind, step)
        details = replace(self.details, step=step, credit=credit)
        lines = [episode_line(episode, details) for episode in episodes]
        write_text(path, "".join(lines))
        indexed, _ = index_lines(path.name, (line.encode() for line in lines))
        append_to_index(self.directory, indexed)
        return path
