"""Rewards: score functions by name, an episode's score, and the tokens it falls on."""

from openmanus_rl.rewards import agentgym, exact_match
from openmanus_rl.rewards.allocation import allocate_rewards
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.score import compute_score, score_episode

__all__ = [
    "SUPPORTED_REWARD_SCORE_FNS",
    "agentgym",
    "allocate_rewards",
    "compute_score",
    "exact_match",
    "score_episode",
]
