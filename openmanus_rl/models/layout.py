"""How rows of tokens lie beside each other when a model computes them.

| layout | |
|---|---|
| `sorted` | rows of like length in one rectangle, padded on the right; causal attention never sees the padding |
| `packed` | rows one after another in one sequence without padding; attention in blocks |
| `tree` | as packed, and what rows share at their beginnings is there once |

A row's token has a *place*, its index in the flattened tensor of ids; in a tree several rows have tokens at the same
place. What a model says of a place, it says of all of them: the same tokens stand before it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from openmanus_rl.models.attention import Block, Blocks
from openmanus_rl.models.trie import Row, Trie

Kind = Literal["tree", "packed", "sorted"]

PAIRS_OF_A_CALL = 4096
"""Pairs of query and key that may be computed for nothing where that saves a call of attention."""


@dataclass(frozen=True)
class Part:
    """The tokens of a row from `shared` on, which are its own; those before belong to a row before it."""

    row: int
    shared: int
    length: int

    @property
    def own(self) -> int:
        return self.length - self.shared


@dataclass(frozen=True)
class Layout:
    """Some rows, and where each of their tokens is computed."""

    kind: Kind
    rows: list[int]
    """Which rows these are."""
    shape: tuple[int, int]
    """Of the tensor of ids: sequences and tokens, padding included."""
    places: dict[int, np.ndarray]
    """The place of each token of a row."""
    groups: list[list[Part]] = field(default_factory=list)
    """What attention computes together; empty where every sequence is causal by itself."""

    @property
    def computed(self) -> int:
        """Tokens that go through the model."""
        return self.shape[0] * self.shape[1]

    @cached_property
    def gathered(self) -> int:
        """Vectors that are copied into blocks: a query once, a key and its value."""
        return sum(len(group) * (3 * _queries(group) + 2 * _before(group)) for group in self.groups)

    @cached_property
    def pairs(self) -> int:
        """Pairs of query and key that attention computes, padding included: causal attention leaves out half."""
        if not self.groups:
            return self.computed * self.shape[1] // 2
        return sum(_rectangle(group) // (1 if _before(group) else 2) for group in self.groups)

    def tokens(self, ids: Sequence[Row], device: torch.device) -> "Tokens":
        """What the model is given, where `ids` are all rows."""
        input_ids = np.zeros(self.computed, dtype=np.int64)
        position_ids = np.zeros(self.computed, dtype=np.int64)
        if not self.groups:
            position_ids.reshape(self.shape)[:] = np.arange(self.shape[1])
        for row, places in self.places.items():
            input_ids[places] = ids[row]
            position_ids[places] = np.arange(len(places))
        return Tokens(
            torch.from_numpy(input_ids).view(self.shape).to(device),
            torch.from_numpy(position_ids).view(self.shape).to(device),
            self._blocks(device) if self.groups else None,
        )

    def _blocks(self, device: torch.device) -> Blocks:
        """A group's keys stand aligned: in every part the own tokens begin at the same column."""
        blocks, found, outputs = [], np.zeros(self.computed, dtype=np.int64), 0
        for group in self.groups:
            width, before = _queries(group), _before(group)
            queries = np.zeros((len(group), width), dtype=np.int64)
            keys = np.zeros((len(group), before + width), dtype=np.int64)
            for number, part in enumerate(group):
                places = self.places[part.row]
                queries[number, : part.own] = places[part.shared :]
                keys[number, before - part.shared : before + part.own] = places
                found[places[part.shared :]] = outputs + number * width + np.arange(part.own)
            outputs += queries.size
            mask = _mask([part.shared for part in group], before, width) if before else None
            blocks.append(
                Block(
                    torch.from_numpy(queries).to(device),
                    torch.from_numpy(keys).to(device),
                    None if mask is None else mask.to(device),
                )
            )
        return Blocks(tuple(blocks), torch.from_numpy(found).to(device))


@dataclass(frozen=True)
class Tokens:
    """Input of a decoder: S sequences of L tokens."""

    input_ids: Tensor
    position_ids: Tensor
    blocks: Blocks | None

    @classmethod
    def of(cls, input_ids: Tensor) -> "Tokens":
        """Sequences that are rows by themselves, padded on the right."""
        return cls(input_ids, torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids), None)


def sorted_layouts(ids: Sequence[Row], budget: int) -> Iterator[Layout]:
    """Rectangles of at most `budget` tokens, padding included, or of one row; the longest rows first."""
    for rows in micro_batches([len(row) for row in ids], budget):
        width = len(ids[rows[0]])
        places = {row: number * width + np.arange(len(ids[row])) for number, row in enumerate(rows)}
        yield Layout("sorted", rows, (len(rows), width), places)


def packed_layouts(ids: Sequence[Row], budget: int) -> Iterator[Layout]:
    """Sequences of at most `budget` tokens, or of one row; the longest rows first."""
    order = sorted(range(len(ids)), key=lambda row: (-len(ids[row]), row))
    apart = Trie(order, [0] * len(order), [len(ids[row]) for row in order])
    for trie in apart.within(budget):
        yield _laid_out("packed", trie)


def tree_layouts(ids: Sequence[Row], budget: int) -> Iterator[Layout]:
    """Sequences of at most `budget` tokens, or of one row; each has its shared beginnings once."""
    for trie in Trie.of(ids).within(budget):
        yield _laid_out("tree", trie)


LAYOUTS: dict[Kind, Callable[[Sequence[Row], int], Iterator[Layout]]] = {
    "tree": tree_layouts,
    "packed": packed_layouts,
    "sorted": sorted_layouts,
}


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Rows in batches of like length, the longest first; each holds at most `token_budget` tokens with its padding.

    A row longer than the budget stands alone. With the longest first, memory that does not suffice shows at once.
    """
    batches: list[list[int]] = []
    width = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if batches and width * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
            width = lengths[row]
    return batches


def _laid_out(kind: Kind, trie: Trie) -> Layout:
    places: dict[int, np.ndarray] = {}
    before, used = np.zeros(0, dtype=np.int64), 0
    parts = []
    for row, shared, length in zip(trie.order, trie.shared, trie.lengths, strict=True):
        places[row] = before = np.concatenate([before[:shared], used + np.arange(length - shared)])
        used += length - shared
        if length > shared:
            parts.append(Part(row, shared, length))
    return Layout(kind, trie.order, (1, used), places, _grouped(parts))


def _grouped(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts that attention computes together: as many as possible without much padding.

    Whole rows are by themselves: they need no mask.
    """
    groups: list[list[Part]] = []
    useful = 0
    for part in sorted(parts, key=lambda part: (part.shared, part.own)):
        if groups and (groups[-1][0].shared > 0) == (part.shared > 0):
            joined = [*groups[-1], part]
            if _rectangle(joined) - useful - _area(part) <= PAIRS_OF_A_CALL * len(groups[-1]):
                groups[-1].append(part)
                useful += _area(part)
                continue
        groups.append([part])
        useful = _area(part)
    return groups


def _rectangle(group: Sequence[Part]) -> int:
    """Pairs that are computed for the group, padding included."""
    return len(group) * _queries(group) * (_before(group) + _queries(group))


def _area(part: Part) -> int:
    return part.own * part.length


def _queries(group: Sequence[Part]) -> int:
    return max(part.own for part in group)


def _before(group: Sequence[Part]) -> int:
    return max(part.shared for part in group)


def _mask(shared: Sequence[int], before: int, width: int) -> Tensor:
    """What is added to the scores: nothing for what stands before in the row, and for a token itself."""
    if len(set(shared)) == 1:
        shared = shared[:1]
    hidden = torch.zeros(len(shared), width, before + width, dtype=torch.bool)
    hidden[:, :, before:] = torch.ones(width, width, dtype=torch.bool).triu(1)
    hidden[:, :, :before] = torch.arange(before) < before - torch.tensor(shared)[:, None, None]
    return torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
