"""ROUGE-L: the F1 of the longest common subsequence of words (Lin 2004)."""

from typing import Any

from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.texts import answer_and_references, words


@SUPPORTED_REWARD_SCORE_FNS.register("rouge_l")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """The best over the expected answers."""
    answer, references = answer_and_references("rouge_l", solution_str, ground_truth, kwargs)
    return max(_rouge_l(words(answer), words(reference)) for reference in references)


def _rouge_l(said: list[str], expected: list[str]) -> float:
    if not said or not expected:
        return float(said == expected)
    return 2 * _longest_common(said, expected) / (len(said) + len(expected))


def _longest_common(one: list[str], other: list[str]) -> int:
    """Words of the longest list that is a subsequence of both."""
    best = [0] * (len(other) + 1)
    for word in one:
        diagonal = 0
        for column, against in enumerate(other, start=1):
            above = best[column]
            best[column] = diagonal + 1 if word == against else max(above, best[column - 1])
            diagonal = above
    return best[-1]
