"""Labels such as group or episode indices, counted."""

from typing import NamedTuple

import torch
from torch import Tensor


class Distinct(NamedTuple):
    """The different labels of a list in rising order, each item's place among them, and how often each occurs."""

    names: Tensor
    place: Tensor
    counts: Tensor


def distinct(labels: Tensor) -> Distinct:
    """Labels need not begin at 0 nor follow one another."""
    names, place, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    return Distinct(names, place, counts)
