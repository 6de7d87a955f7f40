"""The `episodes/` of a run: one file for each kind of episodes at one step, written whole."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.records import Credit, RecordDetails, write_episodes

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
        write_episodes(path, episodes, replace(self.details, step=step, credit=credit))
        return path
