"""A model in parts over ranks (FSDP2), and back to whole tensors.

Each decoder layer is gathered when it computes and let go after; the rest (embeddings, head) is one part of its own, so
tied weights stay tied. On one rank nothing is sharded, and every tensor is whole already.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from openmanus_rl.workers.parallel import device, rank, rank_count


def shard(root: nn.Module, language_model: PreTrainedModel) -> None:
    """Divide `root`, which computes with `language_model`, over the ranks, in place; all must go through `root(…)`.

    Gradients are summed over ranks, not averaged: losses have denominators that count the rows of all ranks.
    """
    if rank_count() == 1:
        root.to(device())
        return
    mesh = init_device_mesh(device().type, (rank_count(),))
    for layer in layers_of(language_model):
        fully_shard(layer, mesh=mesh)
    fully_shard(root, mesh=mesh, reshard_after_forward=True)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def whole(tensor: Tensor) -> Tensor:
    """The tensor with the parts of all ranks. All ranks must call."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def whole_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors on the CPU of rank 0; the other ranks get none. All ranks must call.

    One rank gets its own tensors, not copies. Names that share a tensor still do.
    """
    found: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if id(tensor) not in found:
            gathered = whole(tensor.detach())
            found[id(tensor)] = gathered.cpu() if rank() == 0 else gathered.new_empty(0)
    return {name: found[id(tensor)] for name, tensor in tensors.items()} if rank() == 0 else {}


def whole_state(module: nn.Module) -> dict[str, Tensor]:
    """The module's state dict as `whole_tensors`. All ranks must call."""
    return whole_tensors(module.state_dict(keep_vars=True))


def load_whole_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put whole tensors, which every rank has, into the module as it is sharded. What trains must be among them."""
    own = module.state_dict(keep_vars=True)
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    if state.keys() - own.keys() or trained - state.keys():
        wrong = sorted((state.keys() - own.keys()) | (trained - state.keys()))
        raise ValueError(f"these weights are not those of the model, such as {', '.join(wrong[:3])}")
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(placed_like(tensor, own[name]))


def placed_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A copy of a whole tensor, on the device of `other` and sharded as `other` is."""
    copied = tensor.to(other.device, copy=True)
    if isinstance(other, DTensor):
        return distribute_tensor(copied, other.device_mesh, other.placements, src_data_rank=None)
    return copied


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The repeated blocks, which Hugging Face names in every model's class."""
    names = set(model._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__ in names]
