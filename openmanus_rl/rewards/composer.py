"""A weighted sum of score functions, written as one: "agentgym + 0.1*format + -0.001*length"."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from openmanus_rl.errors import UserError
from openmanus_rl.rewards.registry import ScoreFunction, find_score_function


@dataclass(frozen=True)
class Term:
    """A score function, its weight in the sum, and the name of its metric."""

    name: str
    function: ScoreFunction
    weight: float = 1.0
    label: str = ""
    """As short as a metric's name should be: `short_way_reward.compute_score` for a file's function."""


@cache
def parse_reward(expression: str) -> tuple[Term, ...]:
    """The terms of `algorithm.reward_score_fn`."""
    parts = re.split(r"(?<!\d[eE])\+", expression)  # not within a weight such as 1e+1
    terms = [_term(part.strip(), expression) for part in parts]
    labels = _labels([term.name for term in terms])
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UserError(f"algorithm.reward_score_fn={expression!r} names {twice} twice.", "Add their weights.")
    return tuple(replace(term, label=label) for term, label in zip(terms, labels, strict=True))


def _labels(names: Sequence[str]) -> list[str]:
    """The shortest label of each function that no other has; files of one name are told apart by their directories."""
    candidates = [_candidates(name) for name in names]
    counts = Counter(label for labels in candidates for label in labels)
    return [next((label for label in labels if counts[label] == 1), labels[-1]) for labels in candidates]


def _candidates(name: str) -> list[str]:
    """A function's possible labels, the shortest first."""
    module, found, function = name.rpartition(":")
    if not found:
        return [name]
    if not module.endswith(".py"):
        return [f"{module}.{function}"]
    parts = [part for part in Path(module).with_suffix("").parts if part != "/"]
    return [".".join([*parts[first:], function]) for first in reversed(range(len(parts)))]


def _term(text: str, expression: str) -> Term:
    if re.search(r"\s-\s", text):
        raise UserError(
            f"algorithm.reward_score_fn={expression!r} takes something away.",
            'Add it with a weight below zero: "agentgym + -0.1*length".',
        )
    left, starred, right = text.partition("*")
    name = (right if starred else left).strip()
    if not name:
        raise UserError(
            f"algorithm.reward_score_fn={expression!r} has a term without a name.",
            'Write score functions with their weights: "agentgym + 0.1*format".',
        )
    try:
        weight = float(left) if starred else 1.0
        if not math.isfinite(weight):
            raise ValueError(f"{weight} weighs nothing against anything")
    except ValueError as error:
        raise UserError(
            f"algorithm.reward_score_fn={expression!r}: {left.strip()!r} is not a weight.",
            'Write score functions with their weights: "agentgym + 0.1*format".',
        ) from error
    return Term(name, find_score_function(name), weight)
