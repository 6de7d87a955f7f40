"""Sentence BLEU: the geometric mean of 1- to 4-gram precision, times a brevity penalty (Papineni et al. 2002).

Precisions above one word are smoothed by adding 1 to hits and tries (Lin and Och 2004), so that a short answer
without a common 4-gram is not 0.
"""

import math
from collections import Counter
from typing import Any

from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.texts import answer_and_references, words


@SUPPORTED_REWARD_SCORE_FNS.register("bleu")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """Against all expected answers at once, from 0 to 1."""
    answer, references = answer_and_references("bleu", solution_str, ground_truth, kwargs)
    said, expected = words(answer), [words(reference) for reference in references]
    if not said:
        return float(any(not reference for reference in expected))
    precisions = [_precision(said, expected, n) for n in range(1, 5)]
    if not precisions[0]:
        return 0.0
    nearest = min((abs(len(reference) - len(said)), len(reference)) for reference in expected)[1]
    brevity = min(0.0, 1 - nearest / len(said))
    return math.exp(brevity + sum(map(math.log, precisions)) / len(precisions))


def _precision(said: list[str], expected: list[list[str]], n: int) -> float:
    mine = _ngrams(said, n)
    most: Counter[tuple[str, ...]] = Counter()
    for reference in expected:
        most |= _ngrams(reference, n)
    hits, tries, smoothing = sum((mine & most).values()), sum(mine.values()), int(n > 1)
    return (hits + smoothing) / (tries + smoothing)


def _ngrams(text: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(text[start : start + n]) for start in range(len(text) - n + 1))
