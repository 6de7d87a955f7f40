"""Rows to micro-batches: laid out so that little is computed twice or for nothing, as many on every rank."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from openmanus_rl.models.layout import Layout, Tokens
from openmanus_rl.models.planner import Planner
from openmanus_rl.models.trie import Row
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.parallel import device, largest


@dataclass(frozen=True)
class MicroBatch:
    """Some rows of a batch as a model computes them: B rows with K sampled tokens, N of them different.

    Rows that begin alike may share places, so one computed token can be the sampled token of several rows. Losses and
    values stay those of each row.
    """

    rows: torch.Tensor
    """Which rows of the batch these are."""
    tokens: Tokens
    """What the model is given."""
    before: torch.Tensor
    """N: the place before each different sampled token, from which it is predicted."""
    labels: torch.Tensor
    """N: the tokens."""
    which: torch.Tensor
    """K: which of the N each sampled token is; row by row, in the order in which they were sampled."""
    last: torch.Tensor
    """B: the place of each row's last token."""
    row_tokens: int
    """Tokens of the rows, each row by itself; what is computed is the size of `tokens`."""

    @property
    def computed(self) -> int:
        """Tokens that go through the model, padding included."""
        return self.tokens.input_ids.numel() if len(self.rows) else 0


def placed(data: DataProto) -> DataProto:
    """The batch on the device where this process computes."""
    return data.select().to(device())


def token_rows(data: DataProto) -> list[Row]:
    """The tokens of each row without padding, which stands before and after them."""
    inside = data.batch["attention_mask"].bool().cpu().numpy()
    ids = data.batch["input_ids"].cpu().numpy()
    return [row[mask] for row, mask in zip(ids, inside, strict=True)]


def iterate_micro_batches(data: DataProto, planner: Planner, rows: torch.Tensor | None = None) -> Iterator[MicroBatch]:
    """Cover the rows (by default all) once.

    A sharded model computes on all ranks together, so all ranks must iterate, and each gets as many micro-batches as
    the one with the most: what follows a rank's last has no rows, and its gradient is 0.
    """
    own = torch.arange(len(data)) if rows is None else rows.cpu()
    mine = data[own]
    ids, sampled = token_rows(mine), _sampled(mine)
    layouts = planner.plan(ids)
    rounds = largest(len(layouts))  # asked before any rank computes: ranks must make the same calls in the same order
    for layout in layouts:
        yield _micro_batch(layout, own, ids, sampled)
    for _ in range(rounds - len(layouts)):
        yield _idle()


def to_responses(values_N: torch.Tensor, micro: MicroBatch, response_mask_BT: torch.Tensor) -> torch.Tensor:
    """What was computed for the different sampled tokens, where they stand in each row's `responses`; 0 elsewhere."""
    out_BT = torch.zeros(response_mask_BT.shape, dtype=values_N.dtype, device=values_N.device)
    return out_BT.masked_scatter(response_mask_BT, values_N[micro.which])


def _sampled(data: DataProto) -> list[np.ndarray]:
    """For each row, the positions of its sampled tokens among its tokens."""
    inside = data.batch["attention_mask"].bool().cpu()
    prompt_width = data.batch["prompts"].shape[1]
    sampled = torch.nn.functional.pad(data.batch["response_mask"].bool().cpu(), (prompt_width, 0))
    found = [np.flatnonzero(row[mask].numpy()) for row, mask in zip(sampled, inside, strict=True)]
    if any(positions[:1] == [0] for positions in found if len(positions)):
        raise ValueError("the first token of a row has no log-prob: nothing stands before it")
    return found


def _micro_batch(layout: Layout, own: torch.Tensor, ids: Sequence[Row], sampled: Sequence[np.ndarray]) -> MicroBatch:
    """Row i of `layout`, `ids` and `sampled` is row `own[i]` of the batch."""
    places = np.concatenate([layout.places[row][sampled[row]] for row in layout.rows])
    before = np.concatenate([layout.places[row][sampled[row] - 1] for row in layout.rows])
    labels = np.concatenate([ids[row][sampled[row]] for row in layout.rows])
    _, first, which = np.unique(places, return_index=True, return_inverse=True)
    return MicroBatch(
        rows=own[layout.rows].to(device()),
        tokens=layout.tokens(ids, device()),
        before=_here(before[first]),
        labels=_here(labels[first]),
        which=_here(which),
        last=_here(np.array([layout.places[row][-1] for row in layout.rows])),
        row_tokens=sum(len(ids[row]) for row in layout.rows),
    )


def _idle() -> MicroBatch:
    """Two tokens of nothing: this rank takes part in a round for which it has no rows."""
    none = torch.zeros(0, dtype=torch.long, device=device())
    nothing = Tokens.of(torch.zeros(1, 2, dtype=torch.long, device=device()))
    return MicroBatch(none, nothing, none, none, none, none, row_tokens=0)


def _here(numbers: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(numbers).long().to(device())
