"""What rows of tokens have in common at their beginnings.

Sorted by their tokens, each row shares its longest known beginning with the row right before it. So a whole trie is an
order and a number for each row: how many of its first tokens stand in the row before. The rest is the row's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

Row = np.ndarray
"""The token ids of a row, without padding."""


@dataclass(frozen=True)
class Trie:
    """Rows in the order of their tokens, each with the length of what it shares with the row before it."""

    order: list[int]
    shared: list[int]
    lengths: list[int]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Trie":
        # Big-endian bytes sort as the numbers do.
        order = sorted(range(len(rows)), key=lambda row: rows[row].astype(">u4").tobytes())
        shared = [0, *(_common(rows[before], rows[row]) for before, row in pairwise(order))][: len(order)]
        return cls(order, shared, [len(rows[row]) for row in order])

    @cached_property
    def tokens(self) -> int:
        """Tokens that are computed if every shared beginning is computed once."""
        return sum(self.lengths) - sum(self.shared)

    def trees(self, cut_below: int) -> list["Trie"]:
        """The parts whose neighbours share at least `cut_below` tokens, which is above 0."""
        return self._cut([place for place, shared in enumerate(self.shared) if shared < cut_below])

    def within(self, budget: int) -> list["Trie"]:
        """Parts of at most `budget` tokens, or of one row; each is cut where least is shared in its second half."""
        cuts = [0] if self.order else []
        while cuts and (end := self._reach(cuts[-1], budget)) < len(self.order):
            half = self._reach(cuts[-1], budget // 2)
            cuts.append(min(range(half, end + 1), key=lambda place: (self.shared[place], -place)))
        return self._cut(cuts)

    def _reach(self, start: int, budget: int) -> int:
        """The first place after `start` whose row is one too many for the budget, or the end."""
        tokens = self.lengths[start]
        for place in range(start + 1, len(self.order)):
            tokens += self.lengths[place] - self.shared[place]
            if tokens > budget:
                return place
        return len(self.order)

    def _cut(self, before: list[int]) -> list["Trie"]:
        """The parts that begin at these places, of which the first is 0."""
        return [
            Trie(self.order[start:end], [0, *self.shared[start + 1 : end]], self.lengths[start:end])
            for start, end in pairwise([*before, len(self.order)])
        ]


def _common(one: Row, other: Row) -> int:
    """Length of the longest common beginning."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length
