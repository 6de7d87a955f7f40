"""What scores of episodes look at."""

from collections.abc import Mapping
from typing import Any

from openmanus_rl.agent.episode import Episode
from openmanus_rl.errors import UserError


def scored_episode(name: str, kwargs: Mapping[str, Any]) -> Episode:
    """The episode that the reward called `name` is to score."""
    episode = kwargs.get("episode")
    if not isinstance(episode, Episode):
        raise UserError(
            f"the reward {name} was called without an episode.", "It scores a whole episode, not text: pass episode=…"
        )
    return episode
