"""Rows to micro-batches: no padding but what rows of like length need beside each other, as many on every rank."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from openmanus_rl.models.forward import micro_batches
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.parallel import device, largest


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a batch without their outer padding: B rows of L tokens, padded on the right."""

    rows: torch.Tensor
    """Which rows of the batch these are."""
    input_ids: torch.Tensor
    position_ids: torch.Tensor
    """Counted from 0 in each row. Padding stands after the tokens, so causal attention never sees it."""
    sampled: torch.Tensor
    """B × L: the sampled tokens, in the layout of `input_ids`."""
    last: torch.Tensor
    """B: position of each row's last token."""


def placed(data: DataProto) -> DataProto:
    """The batch on the device where this process computes."""
    return data.select().to(device())


def iterate_micro_batches(data: DataProto, token_budget: int, rows: torch.Tensor | None = None) -> Iterator[MicroBatch]:
    """Cover the rows (by default all) once, in micro-batches whose padded size is within the budget.

    A sharded model computes on all ranks together, so all ranks must iterate, and each gets as many micro-batches as
    the one with the most: what follows a rank's last has no rows, and its gradient is 0.
    """
    prompt_width = data.batch["prompts"].shape[1]
    attention = data.batch["attention_mask"].bool()
    starts = attention.long().argmax(dim=1)
    lengths = attention.sum(dim=1)
    own = torch.arange(len(data), device=attention.device) if rows is None else rows.to(attention.device)
    batches = micro_batches(lengths[own].tolist(), token_budget)
    rounds = largest(len(batches))
    for chosen in batches:
        rows_B = own[chosen]
        width = int(lengths[rows_B].max())
        offsets = torch.arange(width, device=attention.device)
        inside = offsets < lengths[rows_B, None]
        source = (starts[rows_B, None] + offsets).clamp(max=attention.shape[1] - 1)
        sampled_columns = torch.nn.functional.pad(data.batch["response_mask"][rows_B], (prompt_width, 0))
        yield MicroBatch(
            rows=rows_B,
            input_ids=data.batch["input_ids"][rows_B].gather(1, source) * inside,
            position_ids=offsets.expand(len(chosen), width),
            sampled=sampled_columns.gather(1, source) & inside,
            last=lengths[rows_B] - 1,
        )
    for _ in range(rounds - len(batches)):
        yield _idle(attention.device)


def to_responses(column_BL: torch.Tensor, micro: MicroBatch, response_mask_BT: torch.Tensor) -> torch.Tensor:
    """A micro-batch's values at sampled tokens, put where those tokens stand in `responses`; 0 elsewhere."""
    out_BT = torch.zeros(response_mask_BT.shape, dtype=column_BL.dtype, device=column_BL.device)
    return out_BT.masked_scatter(response_mask_BT, column_BL[micro.sampled])


def _idle(where: torch.device) -> MicroBatch:
    """Two tokens of nothing: this rank takes part in a round for which it has no rows."""
    none = torch.zeros(0, dtype=torch.long, device=where)
    ids = torch.zeros(1, 2, dtype=torch.long, device=where)
    positions = torch.arange(2, device=where)[None]
    return MicroBatch(rows=none, input_ids=ids, position_ids=positions, sampled=ids.bool(), last=none)
