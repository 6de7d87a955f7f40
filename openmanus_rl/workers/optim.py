"""An optimiser with its schedule: AdamW, linear warm-up, linear fall."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.workers.offload import bring_back, put_away
from openmanus_rl.workers.sharding import placed_like, whole, whole_tensors


class Optimiser:
    """Clips, steps and schedules what trains of a model, sharded or not; its state is part of a checkpoint."""

    def __init__(self, model: nn.Module, config: OptimConfig, total_steps: int, scratch: Path = Path(".cache")) -> None:
        """`scratch` is where AdamW's state is with `offload_optimiser` and no GPU."""
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.parameters = list(self.weights.values())
        self.grad_clip = config.grad_clip
        self.scratch = scratch if config.offload_optimiser else None
        self.adamw = torch.optim.AdamW(self.parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)

        def lr_factor(step: int) -> float:
            if step < config.warmup_steps:
                return (step + 1) / config.warmup_steps
            progress = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
            return 1.0 - (1.0 - config.final_lr_ratio) * min(1.0, progress)

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.adamw, lr_factor)

    def step(self) -> float:
        """One step with the gradients at hand, which are cleared in any case; returns their norm before clipping.

        The norm is that of the whole gradient, so on all ranks the step is made, or refused.
        """
        gradients = [weight.grad for weight in self.parameters if weight.grad is not None]
        norm = whole(nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            self.adamw.zero_grad(set_to_none=True)
            raise FloatingPointError(f"the gradient is not finite (norm {float(norm)}): nothing was updated")
        nn.utils.clip_grads_with_norm_(self.parameters, self.grad_clip, norm)
        self._step()
        self.adamw.zero_grad(set_to_none=True)
        self.schedule.step()
        return float(norm)

    def _step(self) -> None:
        if self.scratch is None:
            self.adamw.step()
            return
        bring_back(self.adamw.state)
        self.adamw.step()
        put_away(self.adamw.state, self.scratch)

    @property
    def lr(self) -> float:
        return float(self.schedule.get_last_lr()[0])

    def state_dict(self) -> dict[str, Any]:
        """Whole tensors by the names of their weights, on rank 0; all ranks must call."""
        kinds = sorted({kind for state in self.adamw.state.values() for kind in state})
        return {"adamw": {kind: self._state_of(kind) for kind in kinds}, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a state that any number of ranks has saved; every rank gets all of it."""
        self.adamw.state.clear()
        for kind, tensors in state["adamw"].items():
            for name, tensor in tensors.items():
                weight = self.weights[name]
                here = tensor.to(weight.device, copy=True) if kind == "step" else placed_like(tensor, weight)
                self.adamw.state[weight][kind] = here
        self.schedule.load_state_dict(state["schedule"])
        for group, lr in zip(self.adamw.param_groups, self.schedule.get_last_lr(), strict=True):
            group["lr"] = lr

    def _state_of(self, kind: str) -> dict[str, torch.Tensor]:
        states = {name: self.adamw.state[weight] for name, weight in self.weights.items()}
        return whole_tensors({name: state[kind] for name, state in states.items() if kind in state})
