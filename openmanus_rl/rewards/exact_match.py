"""Exact match: 1 where the final answer is the expected one, else 0."""

import unicodedata
from typing import Any

from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.texts import answer_and_references


@SUPPORTED_REWARD_SCORE_FNS.register("exact_match")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """Compare the agent's last action, or else all of `solution_str`, with `ground_truth` or any one of a list."""
    answer, expected = answer_and_references("exact_match", solution_str, ground_truth, kwargs)
    return float(any(normalise(answer) == normalise(text) for text in expected))


def normalise(text: str) -> str:
    """Without differences of case, width, spacing, surrounding quotes and closing punctuation.

    Articles and inner punctuation stay: "A" can be an answer, and 3.5 is not 35.
    """
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(words).rstrip(".,;:!? ").strip("\"'`“”‘’ ").rstrip(".,;:!? ")
