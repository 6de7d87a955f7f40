"""Lines of different length as one flat list, and sums over their futures without a loop over time.

Dimension suffixes: `_N` items (tokens or turns) of all lines one after the other, `_S` lines, `_L` columns of the
padded form.
"""

from functools import cached_property

import torch
from torch import Tensor

_BLOCK = 64


class Ragged:
    """Which line each item of a flat list belongs to. Lines follow one another; some may be empty."""

    def __init__(self, line_N: Tensor, lines: int) -> None:
        self.line_N = line_N
        self.lines = lines

    @cached_property
    def first_N(self) -> Tensor:
        """True where a line begins."""
        return self._boundary_N1[:-1]

    @cached_property
    def last_N(self) -> Tensor:
        """True where a line ends."""
        return self._boundary_N1[1:]

    @cached_property
    def _boundary_N1(self) -> Tensor:
        edge = self.line_N.new_full((1,), -1)
        return torch.cat([edge, self.line_N]) != torch.cat([self.line_N, edge])

    def pad(self, values_N: Tensor) -> Tensor:
        """One row a line, zeros on the right."""
        flat = values_N.new_zeros(self.lines * self._width)
        flat[self._place_N] = values_N
        return flat.view(self.lines, self._width)

    def flat(self, padded_SL: Tensor) -> Tensor:
        """The inverse of `pad`."""
        return padded_SL.flatten()[self._place_N]

    @cached_property
    def _lengths_S(self) -> Tensor:
        return torch.bincount(self.line_N, minlength=self.lines)

    @cached_property
    def _width(self) -> int:
        return int(self._lengths_S.max()) if self.lines else 0

    @cached_property
    def _place_N(self) -> Tensor:
        """Where each item is in the flattened padded form: all before its line is as wide as the widest line."""
        padding_S = self._width - self._lengths_S
        padding_before_S = padding_S.cumsum(0) - padding_S
        return torch.arange(len(self.line_N), device=self.line_N.device) + padding_before_S[self.line_N]


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
