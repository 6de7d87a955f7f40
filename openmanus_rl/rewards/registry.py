"""Names to score functions."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import cache

from torch import Tensor

from openmanus_rl.errors import UserError
from openmanus_rl.registry import Registry

Score = float | Mapping[str, float] | Tensor
"""A number, a dict with `score` whose other keys become metrics, or a tensor of one element."""
ScoreFunction = Callable[..., Score | Awaitable[Score]]
"""`compute_score(solution_str, ground_truth, **kwargs)`, plain or asynchronous, or a process reward."""

_SIGNATURE = "compute_score(solution_str, ground_truth, **kwargs)"

SUPPORTED_REWARD_SCORE_FNS: Registry[ScoreFunction] = Registry("reward score function")


@cache
def find_score_function(name: str) -> ScoreFunction:
    """The function `algorithm.reward_score_fn` names: a registered one, or a user's own. A user's file is run once."""
    function = SUPPORTED_REWARD_SCORE_FNS.lookup(name)
    if not callable(function):
        raise UserError(
            f"the reward score function {name} is {function!r}, which cannot be called.",
            f"It must be a function {_SIGNATURE}.",
        )
    _check_takes_keywords(name, function)
    return function


def _check_takes_keywords(name: str, function: ScoreFunction) -> None:
    """What is told by keyword is more than a function names; without `**kwargs` it would fail at the first episode."""
    try:
        signature = inspect.signature(getattr(function, "function", function))  # a process reward holds its function
    except ValueError:  # some functions written in C tell none
        return
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.parameters.values()):
        raise UserError(
            f"the reward score function {name}{signature} takes no **kwargs.",
            f"It is told more by keyword than it names. Write {_SIGNATURE}, or (turn, state, history, **kwargs) "
            "for a process reward.",
        )
