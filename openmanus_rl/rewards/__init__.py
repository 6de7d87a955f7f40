"""Rewards: score functions by name, an episode's score, and the tokens it falls on."""

from openmanus_rl.rewards import (
    action_similarity,
    agentgym,
    bleu,
    exact_match,
    f1,
    format,
    length,
    llm_judge,
    math,
    rouge_l,
)
from openmanus_rl.rewards.allocation import allocate_rewards
from openmanus_rl.rewards.checks import RewardError
from openmanus_rl.rewards.composer import parse_reward
from openmanus_rl.rewards.manager import RewardManager
from openmanus_rl.rewards.process import ProcessReward, process_reward
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.score import Judgement, compute_score, score_episode

__all__ = [
    "SUPPORTED_REWARD_SCORE_FNS",
    "Judgement",
    "ProcessReward",
    "RewardError",
    "RewardManager",
    "action_similarity",
    "agentgym",
    "allocate_rewards",
    "bleu",
    "compute_score",
    "exact_match",
    "f1",
    "format",
    "length",
    "llm_judge",
    "math",
    "parse_reward",
    "process_reward",
    "rouge_l",
    "score_episode",
]
