"""When two values are the same: NaN equals NaN, containers are compared by what is in them."""

from typing import Any

import numpy as np
import torch

from openmanus_rl.protocol.columns import Array


def tensors_equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Same dtype, shape and values, wherever the two are stored."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    b = b.to(a.device)
    if torch.equal(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()):
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def deep_equal(a: Any, b: Any) -> bool:
    """Same type and values, through arrays, tensors, dicts, lists and tuples, also where they contain themselves."""
    return _equal(a, b, set())


def _equal(a: Any, b: Any, open_pairs: set[tuple[int, int]]) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    pair = (id(a), id(b))
    if pair in open_pairs:
        # A cycle that is the same in both so far: what differs elsewhere is found elsewhere.
        return True
    open_pairs.add(pair)
    try:
        return _equal_of_one_type(a, b, open_pairs)
    finally:
        open_pairs.remove(pair)


def _equal_of_one_type(a: Any, b: Any, open_pairs: set[tuple[int, int]]) -> bool:
    if isinstance(a, np.ndarray):
        return _arrays_equal(a, b, open_pairs)
    if isinstance(a, torch.Tensor):
        return tensors_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key], open_pairs) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_equal(x, y, open_pairs) for x, y in zip(a, b, strict=True))
    if isinstance(a, float | complex | np.inexact):
        return bool(a == b or (a != a and b != b))
    return bool(a == b)


def _arrays_equal(a: Array, b: Array, open_pairs: set[tuple[int, int]]) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype == object:
        return all(_equal(x, y, open_pairs) for x, y in zip(a.flat, b.flat, strict=True))
    # numpy can only look for NaN (or NaT) in these kinds; for text it would raise.
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fcmM")
