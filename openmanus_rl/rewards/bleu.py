"""Sentence BLEU, by sacrebleu: the geometric mean of 1- to 4-gram precision, times a brevity penalty.

Papineni et al. 2002. Precisions above one word are smoothed by adding 1 to hits and tries (Lin and Och 2004), so that a
short answer without a common 4-gram is not 0.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

from openmanus_rl.rewards.registry import SUPPORTED_REWARD_SCORE_FNS
from openmanus_rl.rewards.texts import answer_and_references, words

if TYPE_CHECKING:
    from sacrebleu import BLEU


@SUPPORTED_REWARD_SCORE_FNS.register("bleu")
def compute_score(solution_str: str, ground_truth: Any, **kwargs: Any) -> float:
    """Against all expected answers at once, from 0 to 1."""
    answer, references = answer_and_references("bleu", solution_str, ground_truth, kwargs)
    said, expected = words(answer), [words(reference) for reference in references]
    if not said:
        return float(any(not reference for reference in expected))
    score: float = _bleu().corpus_score([" ".join(said)], [[" ".join(reference)] for reference in expected]).score
    return min(1.0, score / 100)


@cache
def _bleu() -> "BLEU":
    from sacrebleu import BLEU  # takes a second to import, and most rewards do without

    return BLEU(tokenize="none", smooth_method="add-k", smooth_value=1, effective_order=False, force=True)
