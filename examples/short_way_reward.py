"""A reward of one's own: success is worth 1, and every turn costs a little, so that the short way is the better one.

./train_grpo.sh algorithm.reward_score_fn=examples/short_way_reward.py:compute_score
"""

from typing import Any

TURN_COST = 0.02


def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> dict[str, float]:
    """`score` is the reward; every other key becomes a metric, here `critic/score/turns/mean`."""
    turns = len(kwargs["episode"].turns)
    return {"score": float(kwargs["success"]) - TURN_COST * turns, "turns": float(turns)}
