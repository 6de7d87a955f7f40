"""Calling an algorithm that may be a user's own: what goes wrong inside it is told as its mistake, with the line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from openmanus_rl.errors import UserError, raised_at


def is_own(function: Callable[..., Any]) -> bool:
    """Whether a function is a user's and not one of ours."""
    return not getattr(function, "__module__", "").startswith("openmanus_rl.")


@contextmanager
def blamed_on(what: str, function: Callable[..., Any]) -> Iterator[None]:
    """An error in a user's own `function` becomes one that names `what` and the line; ours keep their trace."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if not is_own(function):
            raise
        code = getattr(function, "__code__", None)
        where = raised_at(error, code.co_filename if code else "")
        raise UserError(f"{what} raised {type(error).__name__}: {error}", where) from error


def require_floats(column: Any, what: str, like: Tensor) -> None:
    """A float tensor with one number for each token of `like`; `what` begins the complaint about anything else."""
    if not isinstance(column, Tensor):
        raise UserError(f"{what}: a {type(column).__name__}.", f"It must be a float tensor {tuple(like.shape)}.")
    if column.shape != like.shape:
        raise UserError(
            f"{what} of shape {tuple(column.shape)}.", f"It must be one number for each token: {tuple(like.shape)}."
        )
    if not column.is_floating_point():
        raise UserError(f"{what} of {column.dtype}.", "It must be a float tensor.")
