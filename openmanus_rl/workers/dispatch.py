"""How a call to a group of workers reaches its ranks: marks on a worker's methods, read by `distributed/`."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


class Dispatch(StrEnum):
    """The three ways."""

    SPLIT = "split"
    """The `DataProto` is divided over the ranks; what they return is joined."""
    SAME = "same"
    """Every rank gets the same arguments; the answer is rank 0's."""
    RANK0 = "rank0"
    """Only rank 0 is called."""


def dispatch(mode: Dispatch) -> Callable[[Method], Method]:
    """Mark a worker's method as callable through a group."""

    def mark(method: Method) -> Method:
        method.dispatch_mode = mode  # type: ignore[attr-defined]
        return method

    return mark
