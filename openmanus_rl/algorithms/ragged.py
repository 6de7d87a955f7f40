"""Lines of different length as one flat list, and sums over their futures without a loop over time.

Dimension suffixes: `_N` items (tokens or turns) of all lines one after the other, `_S` lines, `_L` columns of the
padded form, `_F` lines that are not empty.
"""

from functools import cached_property

import torch
from torch import Tensor

_BLOCK = 16
"""Columns that are one product: a wider block is fewer steps and more multiplications."""


class Ragged:
    """Which line each item of a flat list belongs to. Lines follow one another; some may be empty."""

    def __init__(self, line_N: Tensor, lines: int, lengths_S: Tensor | None = None) -> None:
        """`lengths_S`, where they are known already, need not be counted."""
        self.line_N = line_N
        self.lines = lines
        self.lengths_S = torch.bincount(line_N, minlength=lines) if lengths_S is None else lengths_S

    @cached_property
    def first_N(self) -> Tensor:
        """True where a line begins."""
        ends = self.lengths_S.cumsum(0)
        return self._marked((ends - self.lengths_S)[self.filled_F])

    @cached_property
    def last_N(self) -> Tensor:
        """True where a line ends."""
        return self._marked(self.ends_F)

    @cached_property
    def filled_F(self) -> Tensor:
        """The lines that are not empty."""
        return self.lengths_S.nonzero().squeeze(1)

    @cached_property
    def ends_F(self) -> Tensor:
        """Where the last item of each line is that is not empty."""
        return self.lengths_S.cumsum(0)[self.filled_F] - 1

    def pad(self, values_N: Tensor) -> Tensor:
        """One row a line, zeros on the right."""
        flat = values_N.new_zeros(self.lines * self._width)
        return flat.scatter_(0, self._place_N, values_N).view(self.lines, self._width)

    def flat(self, padded_SL: Tensor) -> Tensor:
        """The inverse of `pad`."""
        return padded_SL.flatten().index_select(0, self._place_N)

    def _marked(self, places: Tensor) -> Tensor:
        marks_N = torch.zeros(len(self.line_N), dtype=torch.bool, device=self.line_N.device)
        marks_N[places] = True
        return marks_N

    @cached_property
    def _width(self) -> int:
        return int(self.lengths_S.max()) if self.lines else 0

    @cached_property
    def _place_N(self) -> Tensor:
        """Where each item is in the flattened padded form: all before its line is as wide as the widest line."""
        padding_S = self._width - self.lengths_S
        padding_before_S = padding_S.cumsum(0) - padding_S
        padding_before_N = padding_before_S.repeat_interleave(self.lengths_S, output_size=len(self.line_N))
        return padding_before_N.add_(torch.arange(len(self.line_N), device=self.line_N.device))


def discounted_sums(values_SL: Tensor, decay: float) -> Tensor:
    """`out[t] = values[t] + decay * out[t + 1]` along each row.

    A block of columns is one product with a triangular matrix of powers; the sums that blocks hand to the block before
    them are the same problem on a list as long as there are blocks.
    """
    length = values_SL.shape[-1]
    if length <= _BLOCK:
        return values_SL @ _powers(length, decay, values_SL)
    blocks = -(-length // _BLOCK)
    padded = torch.nn.functional.pad(values_SL, (0, blocks * _BLOCK - length))
    inside = padded.view(-1, blocks, _BLOCK) @ _powers(_BLOCK, decay, values_SL)
    totals = discounted_sums(inside[..., 0].contiguous(), decay**_BLOCK)
    following = torch.nn.functional.pad(totals[..., 1:], (0, 1))
    distance = torch.arange(_BLOCK, 0, -1, device=values_SL.device, dtype=values_SL.dtype)
    sums = inside.addcmul_(following.unsqueeze(-1), torch.pow(decay, distance))
    return sums.flatten(1)[:, :length]


def _powers(length: int, decay: float, like: Tensor) -> Tensor:
    """`powers[s, t] = decay ** (s - t)` where item s is not before item t, else 0."""
    steps = torch.arange(length, device=like.device, dtype=like.dtype)
    distance = steps.unsqueeze(1) - steps
    return torch.where(distance >= 0, torch.pow(decay, distance.clamp(min=0)), torch.zeros_like(distance))
