"""A weighted sum of score functions, written as one: "agentgym + 0.1*format + -0.001*length"."""

import math
from dataclasses import dataclass
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

    @property
    def label(self) -> str:
        """As short as a metric's name should be: `short_way_reward.compute_score` for a file's function."""
        module, found, function = self.name.rpartition(":")
        return f"{Path(module).stem}.{function}" if found else self.name


@cache
def parse_reward(expression: str) -> tuple[Term, ...]:
    """The terms of `algorithm.reward_score_fn`."""
    terms = tuple(_term(part.strip(), expression) for part in expression.split("+"))
    labels = [term.label for term in terms]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UserError(f"algorithm.reward_score_fn={expression!r} names {twice} twice.", "Add their weights.")
    return terms


def _term(text: str, expression: str) -> Term:
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
