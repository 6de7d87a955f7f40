"""Supervised fine-tuning on conversations: the loss is on the assistant's tokens only."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from openmanus_rl.config.schema import OptimConfig, WarmStartConfig
from openmanus_rl.data.demonstrations import Demonstration
from openmanus_rl.errors import UserError
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.forward import token_log_probs
from openmanus_rl.workers.optim import Optimiser


@dataclass(frozen=True)
class Example:
    """A conversation as tokens; `mask` is 1 where the assistant speaks."""

    ids: list[int]
    mask: list[int]


def fine_tune(
    model: PreTrainedModel,
    renderer: ChatRenderer,
    demonstrations: Sequence[Demonstration],
    config: WarmStartConfig,
    *,
    max_context: int,
    seed: int,
    on_step: Callable[[int, int, float], None],
) -> None:
    """Train `model` in place; `on_step(step, steps, loss)` follows each optimiser step."""
    examples = [Example(*renderer.conversation_ids(demonstration.messages)) for demonstration in demonstrations]
    examples = [example for example in examples if len(example.ids) <= max_context]
    if not examples:
        raise UserError(f"no demonstration fits model.max_context={max_context} tokens.")
    order = [batch for epoch in range(config.epochs) for batch in _batches(examples, config.batch_tokens, seed, epoch)]
    optimiser = Optimiser(model, OptimConfig(lr=config.lr, final_lr_ratio=0.1), total_steps=len(order))
    model.train()
    for step, batch in enumerate(order, start=1):
        loss = _loss(model, batch)
        loss.backward()
        optimiser.step()
        on_step(step, len(order), loss.item())
    model.eval()


def _batches(examples: Sequence[Example], batch_tokens: int, seed: int, epoch: int) -> Iterator[list[Example]]:
    """All examples once in a shuffled order, in batches of about `batch_tokens`."""
    shuffled = list(examples)
    random.Random(f"{seed}/{epoch}").shuffle(shuffled)
    batch: list[Example] = []
    for example in shuffled:
        if batch and sum(len(other.ids) for other in batch) + len(example.ids) > batch_tokens:
            yield batch
            batch = []
        batch.append(example)
    yield batch


def _loss(model: PreTrainedModel, batch: Sequence[Example]) -> torch.Tensor:
    """Mean negative log-likelihood of the assistant's tokens."""
    width = max(len(example.ids) for example in batch)
    ids = torch.tensor([example.ids + [0] * (width - len(example.ids)) for example in batch])
    selected = torch.tensor([example.mask + [0] * (width - len(example.mask)) for example in batch]).bool()
    positions = torch.arange(width).expand_as(ids)
    log_probs, _ = token_log_probs(model, ids, None, positions, selected)
    return -log_probs.sum() / selected.sum().clamp(min=1)
