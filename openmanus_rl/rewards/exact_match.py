"""Exact match: 1 where the final answer is the expected one, else 0."""

import unicodedata
from typing import Any

from openmanus_rl.errors import UserError
from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS


@SUPPORTED_REWARD_SCORE_FNS.register("exact_match")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """Compare the agent's last action, or else all of `solution_str`, with `ground_truth` or any one of a list."""
    expected = list(ground_truth) if isinstance(ground_truth, list | tuple | set) else [ground_truth]
    if not expected or None in expected:
        raise UserError(
            "the reward exact_match has no ground truth to compare with.",
            "Put it into the data: the column reward_model.ground_truth.",
        )
    action = kwargs.get("action")
    answer = normalise(solution_str if action is None else action)
    return float(any(answer == normalise(str(text)) for text in expected))


def normalise(text: str) -> str:
    """Without differences of case, width, spacing, surrounding quotes and closing punctuation.

    Articles and inner punctuation stay: "A" can be an answer, and 3.5 is not 35.
    """
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(words).rstrip(".,;:!? ").strip("\"'`“”‘’ ").rstrip(".,;:!? ")
