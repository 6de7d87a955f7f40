"""What a user's own algorithm must answer with."""

from typing import Any

from torch import Tensor

from openmanus_rl.errors import UserError


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
