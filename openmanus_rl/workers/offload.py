"""AdamW's state away from where the model computes, between its steps.

It is twice as large as the weights and needed only in a step. Beside a GPU it waits in main memory. Beside a CPU it is
in a file that is mapped into memory: the step works on it there, and the system takes the memory back when it needs it.
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

State = dict[Tensor, dict[str, Tensor]]
"""What an optimiser keeps, by weight and kind."""


def put_away(state: State, directory: Path) -> None:
    """Into main memory, or into files in `directory`, which vanish with the process."""
    _move(state, lambda tensor, weight: tensor.to("cpu") if weight.is_cuda else _in_file(tensor, directory))


def bring_back(state: State) -> None:
    """To where the weights are; what is in a file can be worked on there."""
    _move(state, lambda tensor, weight: tensor.to(weight.device))


def _move(state: State, move: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Move what is as large as its weight; of a sharded tensor, this rank's part."""
    for weight, kinds in state.items():
        for kind, tensor in kinds.items():
            if isinstance(tensor, DTensor):
                moved = move(tensor.to_local(), weight)
                kinds[kind] = DTensor.from_local(
                    moved, tensor.device_mesh, tensor.placements, shape=tensor.shape, stride=tensor.stride()
                )
            elif tensor.ndim:
                kinds[kind] = move(tensor, weight)


def _in_file(tensor: Tensor, directory: Path) -> Tensor:
    if tensor.untyped_storage().filename is not None or not tensor.numel():
        return tensor
    directory.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix="optimiser-", dir=directory)
    os.close(handle)
    try:
        mapped = torch.from_file(name, shared=True, size=tensor.numel(), dtype=tensor.dtype)
    finally:
        os.unlink(name)  # the mapping holds it
    return mapped.view(tensor.shape).copy_(tensor)
