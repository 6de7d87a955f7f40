"""Columns and rows: lists as numpy arrays with one entry per row, and what may name several rows."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from openmanus_rl.protocol.errors import DataProtoError

Array = npt.NDArray[Any]
Column = TypeVar("Column", torch.Tensor, Array)
Rows = Sequence[int] | Sequence[bool] | Array | torch.Tensor
"""What names several rows: positions (negative ones count from the end), or a mask with one bool per row."""


def object_column(values: Any) -> Array:
    """`values` as an object array. Nested lists of equal length become further dimensions, as numpy does it."""
    try:
        return np.array(values, dtype=object)
    except ValueError:
        # Arrays that agree in their first dimension only: numpy cannot nest them, so each stays one object.
        return one_object_per_row(values)


def one_object_per_row(rows: Sequence[Any]) -> Array:
    """A flat object array, whatever the rows are."""
    column = np.empty(len(rows), dtype=object)
    for index, row in enumerate(rows):
        column[index] = row
    return column


def as_array(values: Rows) -> Array:
    """A list, array or tensor on any device as an array."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def row_positions(rows: Rows, length: int) -> Array:
    """`rows` as positions from 0 to `length` - 1."""
    index = as_array(rows)
    if index.size == 0:
        index = index.astype(np.int64)  # an empty list has no type of its own
    if index.ndim != 1 or index.dtype.kind not in "iub":
        raise DataProtoError(
            f"rows are named by one dimension of integers or bools, not by {index.dtype}{list(index.shape)}"
        )
    positions: Array = np.arange(length)[index]
    return positions


def only_keys(entries: dict[str, Any], keys: Iterable[str] | None) -> dict[str, Any]:
    """The entries with one of these keys; None means all."""
    chosen = set(entries if keys is None else keys)
    return {key: value for key, value in entries.items() if key in chosen}


def unfold_columns(key: str, column: Column, n_split: int) -> Column:
    """Cut every row into `n_split` rows along the second dimension."""
    if n_split < 1 or column.ndim < 2 or column.shape[1] % n_split:
        raise DataProtoError(f"{key!r} of shape {list(column.shape)} does not split into {n_split} along dimension 1")
    return column.reshape((len(column) * n_split, column.shape[1] // n_split, *column.shape[2:]))


def list_of_dict_to_dict_of_list(list_of_dict: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows to columns. Every row has the keys of the first."""
    if not list_of_dict:
        return {}
    require_same_keys([row.keys() for row in list_of_dict], "row")
    return {key: [row[key] for row in list_of_dict] for key in list_of_dict[0]}


def require_same_keys(keys_of_parts: Sequence[Collection[str]], what: str) -> None:
    """Refuse a part that has not the keys of the first."""
    first = set(keys_of_parts[0])
    for index, keys in enumerate(keys_of_parts):
        for key in sorted(first.symmetric_difference(keys)):
            has, lacks = (0, index) if key in first else (index, 0)
            raise DataProtoError(f"{what} {has} has the key {key!r}, {what} {lacks} has not")
