"""AgentGym's reward: what the environment itself gave, summed over the episode."""

from typing import Any

from openmanus_rl.errors import UserError
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS


@SUPPORTED_REWARD_SCORE_FNS.register("agentgym")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """The cumulative environment reward, which the caller passes as `episode_return`."""
    if "episode_return" not in kwargs:
        raise UserError(
            "the reward agentgym was called without episode_return.",
            "It scores what the environment gave, not text: pass episode_return=…",
        )
    return float(kwargs["episode_return"])
