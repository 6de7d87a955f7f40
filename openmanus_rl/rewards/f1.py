"""F1 over words: how much of the expected answer was said, and how little else (Rajpurkar et al. 2016, SQuAD)."""

from collections import Counter
from typing import Any

from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.texts import answer_and_references, words


@SUPPORTED_REWARD_SCORE_FNS.register("f1")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """The best over the expected answers."""
    answer, references = answer_and_references("f1", solution_str, ground_truth, kwargs)
    return max(_f1(words(answer), words(reference)) for reference in references)


def _f1(said: list[str], expected: list[str]) -> float:
    if not said or not expected:
        return float(said == expected)
    shared = sum((Counter(said) & Counter(expected)).values())
    return 2 * shared / (len(said) + len(expected))
