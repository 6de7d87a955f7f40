"""The `episodes/` of a run: one file for each kind of episodes at one step, written whole."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.records import write_episodes
from openmanus_rl.agent.rewards import TokenRewards, turn_rewards

Kind = Literal["train", "validation"]


class EpisodeLog:
    """Where a run's episodes are, and what rewards their tokens got."""

    def __init__(self, directory: Path, rewards: TokenRewards = turn_rewards) -> None:
        self.directory = directory
        self.rewards = rewards
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, kind: Kind, step: int) -> Path:
        return self.directory / f"{kind}_step_{step:06d}.jsonl"

    def write(self, kind: Kind, step: int, episodes: Iterable[Episode]) -> Path:
        """Write a step's episodes."""
        path = self.path(kind, step)
        write_episodes(path, episodes, self.rewards)
        return path
