"""Which rank this process is, and what ranks tell each other. Without `torch.distributed`, it is the only one."""

from typing import TypeVar

import torch
from torch import distributed

T = TypeVar("T")


def rank_count() -> int:
    """Processes that work on the same model."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """This process among them; the first is 0."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def device() -> torch.device:
    """Where this process computes: with ranks, where they can reach each other; alone, on a GPU if there is one."""
    if distributed.is_initialized():
        return torch.device("cuda" if "nccl" in distributed.get_backend() else "cpu")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def gathered(value: T) -> list[T]:
    """What each rank has, in the order of ranks, on every rank. All ranks must call."""
    if rank_count() == 1:
        return [value]
    values: list[T] = [value] * rank_count()
    distributed.all_gather_object(values, value)
    return values


def largest(number: int) -> int:
    """The largest of the ranks' numbers, on every rank. All ranks must call."""
    if rank_count() == 1:
        return number
    tensor = torch.tensor(number, device=device())
    distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
    return int(tensor)
