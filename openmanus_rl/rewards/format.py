"""Format: the share of turns whose answer had a valid action."""

from typing import Any

from openmanus_rl.rewards.episodes import scored_episode
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS


@SUPPORTED_REWARD_SCORE_FNS.register("format")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """1 if every turn was valid, to the template's parser and to the world; 0 for an episode without a turn."""
    episode = scored_episode("format", kwargs)
    turns = episode.turns
    return sum(turn.invalid_reason is None for turn in turns) / len(turns) if turns else 0.0
