"""Stacking rows: one column at a time, so that an error can name the column."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from openmanus_rl.protocol.columns import Array, one_object_per_row, require_same_keys
from openmanus_rl.protocol.equality import deep_equal
from openmanus_rl.protocol.errors import DataProtoError, require_keys

METRICS_KEY = "metrics"


@dataclass(frozen=True)
class Pad:
    """How shorter rows of one column are brought to the length of the longest: with what, and on which side."""

    value: float
    side: Literal["right", "left"] = "right"

    def __post_init__(self) -> None:
        if self.side not in ("right", "left"):
            raise DataProtoError(f"rows are padded on the 'right' or the 'left', not {self.side!r}")


def concat_tensors(parts: Sequence[Mapping[str, torch.Tensor]], pad: Mapping[str, Pad]) -> dict[str, torch.Tensor]:
    """The tensors of all parts, which have the same keys. Rows of different shape need a `pad` for their key."""
    require_same_keys(parts, "batch")
    require_keys(pad, parts[0], "batch")
    return {key: _concat_tensor(key, [part[key] for part in parts], pad.get(key)) for key in parts[0]}


def concat_arrays(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The arrays of all parts, which have the same keys."""
    require_same_keys(parts, "non_tensor_batch")
    return {key: _concat_array(key, [part[key] for part in parts]) for key in parts[0]}


def _concat_tensor(key: str, tensors: Sequence[torch.Tensor], pad: Pad | None) -> torch.Tensor:
    tensors = _with_rows(tensors)
    if pad is not None:
        tensors = _padded_alike(key, tensors, pad)
    for tensor in tensors[1:]:
        if tensor.shape[1:] != tensors[0].shape[1:]:
            raise _different_rows(
                key, tensors[0], tensor, f"; pass pad={{{key!r}: Pad(value)}} to fill the shorter ones"
            )
    return torch.cat(list(tensors))


def _padded_alike(key: str, tensors: Sequence[torch.Tensor], pad: Pad) -> list[torch.Tensor]:
    for tensor in tensors[1:]:
        if tensor.ndim != tensors[0].ndim:
            raise _different_rows(key, tensors[0], tensor, "; padding cannot add a dimension")
    longest = [max(sizes) for sizes in zip(*(tensor.shape[1:] for tensor in tensors), strict=True)]
    return [_padded_to(tensor, longest, pad) for tensor in tensors]


def _padded_to(tensor: torch.Tensor, shape: list[int], pad: Pad) -> torch.Tensor:
    if list(tensor.shape[1:]) == shape:
        return tensor
    padded = tensor.new_full((tensor.shape[0], *shape), pad.value)
    place = [
        slice(0, size) if pad.side == "right" else slice(full - size, full)
        for size, full in zip(tensor.shape[1:], shape, strict=True)
    ]
    padded[(slice(None), *place)] = tensor
    return padded


def _concat_array(key: str, arrays: Sequence[Array]) -> Array:
    arrays = _with_rows(arrays)
    different = next((array for array in arrays[1:] if array.shape[1:] != arrays[0].shape[1:]), None)
    if different is None:
        return np.concatenate(arrays)
    if any(array.dtype != object for array in arrays):
        raise _different_rows(key, arrays[0], different)
    # numpy makes a dimension of lists that happen to be of one length; of others it keeps one object per row.
    return np.concatenate([one_object_per_row(array.tolist()) for array in arrays])


def concat_meta_info(infos: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One meta_info for all rows. `metrics` become a list of what each part measured; all else must agree."""
    merged: dict[str, Any] = {}
    metrics: dict[str, list[Any]] = {}
    for info in infos:
        for key, value in info.items():
            if key == METRICS_KEY:
                _gather_metrics(metrics, value)
            elif key not in merged:
                merged[key] = value
            elif not deep_equal(merged[key], value):
                raise DataProtoError(
                    f"cannot concatenate: meta_info[{key!r}] is {reprlib.repr(merged[key])} in one part "
                    f"and {reprlib.repr(value)} in another"
                )
    if metrics:
        merged[METRICS_KEY] = metrics
    return merged


def _gather_metrics(gathered: dict[str, list[Any]], metrics: Any) -> None:
    for measured in metrics if isinstance(metrics, list) else [metrics]:
        for name, value in (measured or {}).items():
            gathered.setdefault(name, []).append(value)


def _with_rows(columns: Sequence[Any]) -> Sequence[Any]:
    """Those that have rows: a part without rows does not know how long its rows would be."""
    return [column for column in columns if len(column)] or columns[:1]


def _different_rows(key: str, first: Any, second: Any, advice: str = "") -> DataProtoError:
    return DataProtoError(
        f"cannot concatenate {key!r}: shape {list(first.shape)} and shape {list(second.shape)} "
        f"differ beyond the first dimension{advice}"
    )
