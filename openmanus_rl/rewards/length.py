"""Length: how many tokens the agent sampled. With a negative weight, brevity pays: "agentgym + -0.001*length"."""

from typing import Any

from openmanus_rl.rewards.episodes import scored_episode
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS


@SUPPORTED_REWARD_SCORE_FNS.register("length")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """Sampled tokens of the whole episode."""
    episode = scored_episode("length", kwargs)
    return float(episode.sampled_tokens)
