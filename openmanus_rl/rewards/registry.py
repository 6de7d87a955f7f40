"""Names to score functions."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache

from torch import Tensor

from openmanus_rl.errors import UserError
from openmanus_rl.registry import Registry

Score = float | Mapping[str, float] | Tensor
"""A number, a dict with `score` whose other keys become metrics, or a tensor of one element."""
ScoreFunction = Callable[..., Score | Awaitable[Score]]
"""`compute_score(solution_str, ground_truth, **kwargs)`, plain or asynchronous, or a process reward."""

SUPPORTED_REWARD_SCORE_FNS: Registry[ScoreFunction] = Registry("reward score function")


@cache
def find_score_function(name: str) -> ScoreFunction:
    """The function `algorithm.reward_score_fn` names: a registered one, or a user's own. A user's file is run once."""
    function = SUPPORTED_REWARD_SCORE_FNS.lookup(name)
    if not callable(function):
        raise UserError(
            f"the reward score function {name} is {function!r}, which cannot be called.",
            "It must be a function compute_score(solution_str, ground_truth, **kwargs).",
        )
    return function
