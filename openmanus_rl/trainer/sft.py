"""Supervised fine-tuning: the loss is the mean negative log-likelihood of what the assistant says."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openmanus_rl.config.schema import OptimConfig, WarmStartConfig
from openmanus_rl.errors import UserError
from openmanus_rl.trainer.examples import Example, layouts, log_prob_sums
from openmanus_rl.workers.optim import Optimiser

OnStep = Callable[[int, int, dict[str, float]], None]
"""(step, steps, metrics), after each optimiser step."""


class FineTuning:
    """A model being fine-tuned in place, epoch by epoch; what trains of it are its weights that require a gradient.

    With held-out examples the best weights are kept, and an epoch is due only while the loss on them still falls.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        examples: Sequence[Example],
        held_out: Sequence[Example],
        config: WarmStartConfig,
        *,
        micro_batch_tokens: int,
        seed: int,
    ) -> None:
        self.model = model
        self.config = config
        self.held_out = held_out
        self.micro_batch_tokens = micro_batch_tokens
        self.packed = model.device.type != "cpu" if config.packing is None else config.packing
        self.order = [_batches(examples, config.batch_tokens, seed, epoch) for epoch in range(config.epochs)]
        self.steps = sum(len(batches) for batches in self.order)
        self.optimiser = Optimiser(model, OptimConfig(lr=config.lr, final_lr_ratio=0.1), total_steps=self.steps)
        self.epoch = 0
        """Epochs done."""
        self.best_loss: float | None = None
        self.epochs_since_best = 0
        self._best: dict[str, Tensor] | None = None

    @property
    def is_due(self) -> bool:
        """Whether another epoch may help."""
        return self.epoch < len(self.order) and self.epochs_since_best < self.config.patience

    def run_epoch(self, on_step: OnStep) -> float | None:
        """Pass over all examples once; the loss on the held-out ones, if there are any."""
        done = sum(len(batches) for batches in self.order[: self.epoch])
        for step, batch in enumerate(self.order[self.epoch], start=done + 1):
            self.model.train()
            loss = self._accumulate_gradient(batch)
            norm = self.optimiser.step()
            on_step(step, self.steps, {"train/loss": loss, "train/grad_norm": norm, "train/lr": self.optimiser.lr})
        self.epoch += 1
        self.model.eval()
        if not self.held_out:
            return None
        loss = self.validation_loss()
        self._keep_best(loss)
        return loss

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Mean negative log-likelihood of a learnt token of the held-out examples."""
        self.model.eval()
        passes = layouts(self.held_out, self.micro_batch_tokens, self.packed)
        total = sum(float(log_prob_sums(self.model, layout, len(self.held_out)).sum()) for layout in passes)
        return -total / _learnt(self.held_out)

    def take_best(self) -> None:
        """Go back to the weights with the lowest loss on held-out examples, where that was measured."""
        if self._best is not None:
            self._load_weights(self._best)

    def state_dict(self) -> dict[str, Any]:
        """All that going on from here needs."""
        return {
            "epoch": self.epoch,
            "best_loss": self.best_loss,
            "epochs_since_best": self.epochs_since_best,
            "best": self._best,
            "weights": self._weights(),
            "adamw": self.optimiser.adamw.state_dict(),
            "schedule": self.optimiser.schedule.state_dict(),
            "torch_rng": torch.get_rng_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state of the same model, examples and config."""
        self.epoch, self.best_loss = state["epoch"], state["best_loss"]
        self.epochs_since_best, self._best = state["epochs_since_best"], state["best"]
        self._load_weights(state["weights"])
        self.optimiser.adamw.load_state_dict(state["adamw"])
        self.optimiser.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["torch_rng"])

    def _accumulate_gradient(self, batch: Sequence[Example]) -> float:
        """Add the gradient of the batch's mean loss, whatever passes it takes; the loss."""
        learnt = _learnt(batch)
        total = 0.0
        for layout in layouts(batch, self.micro_batch_tokens, self.packed):
            loss = -log_prob_sums(self.model, layout, len(batch)).sum() / learnt
            loss.backward()
            total += loss.item()
        return total

    def _keep_best(self, loss: float) -> None:
        if self.best_loss is None or loss < self.best_loss:
            self.best_loss, self.epochs_since_best, self._best = loss, 0, self._weights()
        else:
            self.epochs_since_best += 1

    def _weights(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.optimiser.weights.items()}

    @torch.no_grad()
    def _load_weights(self, weights: dict[str, Tensor]) -> None:
        for name, weight in self.optimiser.weights.items():
            weight.copy_(weights[name])


def fine_tune(
    model: PreTrainedModel,
    examples: Sequence[Example],
    config: WarmStartConfig,
    *,
    micro_batch_tokens: int,
    seed: int,
    on_step: OnStep,
) -> None:
    """All of it at once, in place; nothing is saved on the way."""
    train, held_out = split(examples, config.validation_share, seed)
    tuning = FineTuning(model, train, held_out, config, micro_batch_tokens=micro_batch_tokens, seed=seed)
    while tuning.is_due:
        tuning.run_epoch(on_step)
    tuning.take_best()


def fitting(examples: Sequence[Example], max_context: int, say: Callable[[str], None]) -> list[Example]:
    """The examples that fit the context and have something to learn; how many do not is said."""
    kept = [example for example in examples if len(example.ids) <= max_context and example.learnt]
    if not kept:
        raise UserError(
            f"no example fits model.max_context={max_context} tokens and has something to learn.",
            "Raise model.max_context, or look at the messages' loss flags.",
        )
    if len(kept) < len(examples):
        left_out = len(examples) - len(kept)
        say(f"{left_out} of {len(examples)} conversations do not fit model.max_context={max_context} or teach nothing")
    return kept


def split(examples: Sequence[Example], share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """What is learnt from, and a share, rounded down, that is held out; both in the order of `examples`."""
    count = int(share * len(examples))
    if share and not count:
        raise UserError(
            f"warm_start.validation_share={share:g} of {len(examples)} examples is not one to hold out.",
            f"Raise it to 1/{max(1, len(examples))} or more, or set it to 0.",
        )
    held_out = set(random.Random(f"{seed}/held out").sample(range(len(examples)), count))
    return (
        [example for index, example in enumerate(examples) if index not in held_out],
        [example for index, example in enumerate(examples) if index in held_out],
    )


def _learnt(examples: Sequence[Example]) -> int:
    return sum(example.learnt for example in examples)


def _batches(examples: Sequence[Example], batch_tokens: int, seed: int, epoch: int) -> list[list[Example]]:
    """All examples once in a shuffled order, in batches of about `batch_tokens`."""
    shuffled = list(examples)
    random.Random(f"{seed}/{epoch}").shuffle(shuffled)
    batches: list[list[Example]] = []
    size = 0
    for example in shuffled:
        if not batches or size + len(example.ids) > batch_tokens:
            batches.append([])
            size = 0
        batches[-1].append(example)
        size += len(example.ids)
    return batches
