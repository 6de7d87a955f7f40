"""An optimiser with its schedule: AdamW, linear warm-up, linear fall."""

import math
from collections.abc import Mapping, Set
from pathlib import Path

import torch
from torch import Tensor, nn

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.workers.offload import bring_back, put_away
from openmanus_rl.workers.sharding import whole

STEPS, LR_SCALE, ADAMW = "schedule/steps", "schedule/lr_scale", "adamw/"
"""Names in a checkpoint; what AdamW knows of a weight is `adamw/<kind>/<weight>`."""


class Optimiser:
    """Clips, steps and schedules what trains of a model, sharded or not; its state is part of a checkpoint."""

    def __init__(self, model: nn.Module, config: OptimConfig, total_steps: int, scratch: Path = Path(".cache")) -> None:
        """`scratch` is where AdamW's state is with `offload_optimiser` and no GPU."""
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.parameters = list(self.weights.values())
        self.grad_clip = config.grad_clip
        self.scratch = scratch if config.offload_optimiser else None
        self.lr_scale = 1.0
        """A factor on the schedule's learning rate: what the guard took back, if it did."""
        self.adamw = torch.optim.AdamW(self.parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)

        def lr_factor(step: int) -> float:
            if step < config.warmup_steps:
                return self.lr_scale * (step + 1) / config.warmup_steps
            progress = (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
            return self.lr_scale * (1.0 - (1.0 - config.final_lr_ratio) * min(1.0, progress))

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

    def scale_lr(self, factor: float) -> None:
        """Take smaller (or larger) steps from here on."""
        self._go_on_from(self.schedule.last_epoch, self.lr_scale * factor)

    def tensors(self) -> dict[str, Tensor]:
        """Its state, sharded as the weights are."""
        kept = {
            f"{ADAMW}{kind}/{name}": tensor
            for name, weight in self.weights.items()
            for kind, tensor in self.adamw.state[weight].items()
        }
        return kept | {
            STEPS: torch.tensor(self.schedule.last_epoch),
            LR_SCALE: torch.tensor(self.lr_scale, dtype=torch.float64),
        }

    def blank_tensors(self, names: Set[str]) -> dict[str, Tensor]:
        """Tensors to be filled for `load_tensors`, with those of `names` that are an optimiser's."""
        blank = {STEPS: torch.tensor(0), LR_SCALE: torch.tensor(0.0, dtype=torch.float64)}
        for name in sorted(names):  # ranks must agree on the order
            if name.startswith(ADAMW):
                kind, _, weight = name.removeprefix(ADAMW).partition("/")
                if weight not in self.weights:
                    raise ValueError(f"the optimiser's state is not that of the model: it has {weight}")
                own = self.weights[weight]
                blank[name] = torch.tensor(0.0, device=own.device) if kind == "step" else torch.zeros_like(own)
        return blank

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on with a state that any number of ranks has saved."""
        self.adamw.state.clear()
        for name, tensor in tensors.items():
            if name.startswith(ADAMW):
                kind, _, weight = name.removeprefix(ADAMW).partition("/")
                self.adamw.state[self.weights[weight]][kind] = tensor
        self._go_on_from(int(tensors[STEPS]), float(tensors[LR_SCALE]))

    def _go_on_from(self, steps: int, lr_scale: float) -> None:
        self.lr_scale = lr_scale
        rates = [
            base * factor(steps) for base, factor in zip(self.schedule.base_lrs, self.schedule.lr_lambdas, strict=True)
        ]
        self.schedule.last_epoch = steps
        self.schedule._last_lr = rates
        for group, lr in zip(self.adamw.param_groups, rates, strict=True):
            group["lr"] = lr
