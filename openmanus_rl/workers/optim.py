"""An optimiser with its schedule: AdamW, linear warm-up, linear fall."""

import math
from typing import Any

import torch
from torch import nn

from openmanus_rl.config.schema import OptimConfig


class Optimiser:
    """Clips, steps and schedules; its state is part of a checkpoint."""

    def __init__(self, model: nn.Module, config: OptimConfig, total_steps: int) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.grad_clip = config.grad_clip
        self.adamw = torch.optim.AdamW(self.parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)

        def lr_factor(step: int) -> float:
            if step < config.warmup_steps:
                return (step + 1) / config.warmup_steps
            progress = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
            return 1.0 - (1.0 - config.final_lr_ratio) * min(1.0, progress)

        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.adamw, lr_factor)

    def step(self) -> float:
        """One step with the gradients at hand, which are cleared in any case; returns their norm before clipping."""
        norm = float(nn.utils.clip_grad_norm_(self.parameters, self.grad_clip))
        if not math.isfinite(norm):
            self.adamw.zero_grad(set_to_none=True)
            raise FloatingPointError(f"the gradient is not finite (norm {norm}): nothing was updated")
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        self.schedule.step()
        return norm

    @property
    def lr(self) -> float:
        return float(self.schedule.get_last_lr()[0])

    def state_dict(self) -> dict[str, Any]:
        return {"adamw": self.adamw.state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adamw.load_state_dict(state["adamw"])
        self.schedule.load_state_dict(state["schedule"])
