"""What a pass computes in, and what it keeps for the backward pass."""

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.workers.parallel import device


def passes_in(config: OptimConfig) -> torch.autocast:
    """Within it matrices are multiplied in the config's precision; the weights stay as they are, in float32."""
    return torch.autocast(device().type, torch.bfloat16, enabled=config.precision == "bfloat16")


def keep_only_inputs(layers: list[nn.Module]) -> None:
    """Have each layer keep its input for the backward pass and compute the rest again. Without gradients, as before."""
    for layer in layers:
        layer.forward = MethodType(_computed_again, layer)  # a method: in a copy of the model it is the copy's


def _computed_again(layer: nn.Module, *arguments: Any, **named: Any) -> Any:
    forward = partial(type(layer).forward, layer)
    if not torch.is_grad_enabled():
        return forward(*arguments, **named)
    return checkpoint(forward, *arguments, use_reentrant=False, **named)
