"""Rows to micro-batches: no padding but what rows of like length need beside each other."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from openmanus_rl.models.forward import micro_batches
from openmanus_rl.protocol import DataProto


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


def iterate_micro_batches(data: DataProto, token_budget: int) -> Iterator[MicroBatch]:
    """Cover all rows once, in micro-batches whose padded size is within the budget."""
    prompt_width = data.batch["prompts"].shape[1]
    attention = data.batch["attention_mask"].bool()
    starts = attention.long().argmax(dim=1)
    lengths = attention.sum(dim=1)
    for chosen in micro_batches(lengths.tolist(), token_budget):
        rows = torch.tensor(chosen)
        width = int(lengths[rows].max())
        offsets = torch.arange(width)
        inside = offsets < lengths[rows, None]
        source = (starts[rows, None] + offsets).clamp(max=attention.shape[1] - 1)
        sampled_columns = torch.nn.functional.pad(data.batch["response_mask"][rows], (prompt_width, 0))
        yield MicroBatch(
            rows=rows,
            input_ids=data.batch["input_ids"][rows].gather(1, source) * inside,
            position_ids=offsets.expand(len(chosen), width),
            sampled=sampled_columns.gather(1, source) & inside,
            last=lengths[rows] - 1,
        )


def to_responses(column_BL: torch.Tensor, micro: MicroBatch, response_mask_BT: torch.Tensor) -> torch.Tensor:
    """A micro-batch's values at sampled tokens, put where those tokens stand in `responses`; 0 elsewhere."""
    out_BT = torch.zeros(response_mask_BT.shape, dtype=column_BL.dtype)
    return out_BT.masked_scatter(response_mask_BT, column_BL[micro.sampled])
