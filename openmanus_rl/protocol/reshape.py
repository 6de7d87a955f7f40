"""Whole protos in another shape: padded to a divisor, folded into groups, collated from rows."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from openmanus_rl.protocol.columns import list_of_dict_to_dict_of_list, object_column
from openmanus_rl.protocol.dataproto import DataProto
from openmanus_rl.protocol.errors import DataProtoError
from openmanus_rl.protocol.item import DataProtoItem
from openmanus_rl.protocol.tensordicts import tensors_of, with_columns


def pad_dataproto_to_divisor(data: DataProto, size_divisor: int) -> tuple[DataProto, int]:
    """Append rows from the front, over again if need be, until `size_divisor` divides the rows; and how many."""
    if size_divisor < 1:
        raise DataProtoError(f"size_divisor must be at least 1, not {size_divisor}")
    pad_size = -len(data) % size_divisor
    if pad_size == 0:
        return data.select(), 0
    return data.select_idxs(np.arange(len(data) + pad_size) % len(data)), pad_size


def unpad_dataproto(data: DataProto, pad_size: int) -> DataProto:
    """Take the last `pad_size` rows off again."""
    if not 0 <= pad_size <= len(data):
        raise DataProtoError(f"cannot take {pad_size} rows of padding off {len(data)} rows")
    return data[: len(data) - pad_size]


def fold_batch_dim(data: DataProto, new_batch_size: int) -> DataProto:
    """[rows, ...] to [new_batch_size, rows / new_batch_size, ...]: neighbouring rows become one."""
    if new_batch_size < 1 or len(data) % new_batch_size:
        raise DataProtoError(f"{len(data)} rows do not fold into {new_batch_size}")
    return _reshaped(data, 1, (new_batch_size, len(data) // new_batch_size))


def unfold_batch_dim(data: DataProto, batch_dims: int = 2) -> DataProto:
    """The inverse of folding: the first `batch_dims` dimensions become the rows."""
    columns: dict[str, Any] = {**tensors_of(data.batch), **data.non_tensor_batch}
    leading = {key: column.shape[:batch_dims] for key, column in columns.items()}
    if not leading:
        return data.select()
    first_key, shape = next(iter(leading.items()))
    for key, other in leading.items():
        if len(other) < batch_dims or other != shape:
            raise DataProtoError(
                f"cannot make rows of the first {batch_dims} dimensions: {key!r} has there {list(other)}, "
                f"{first_key!r} {list(shape)}"
            )
    return _reshaped(data, batch_dims, (math.prod(shape),))


def collate_fn(x: Sequence[DataProtoItem]) -> DataProto:
    """Rows back to a `DataProto`, without meta_info."""
    if not x:
        raise DataProtoError("there is nothing to collate: the list of items is empty")
    tensors = list_of_dict_to_dict_of_list([tensors_of(item.batch) for item in x])
    columns = list_of_dict_to_dict_of_list([item.non_tensor_batch for item in x])
    return DataProto.from_dict(
        {key: torch.stack(rows) for key, rows in tensors.items()},
        {key: object_column(rows) for key, rows in columns.items()},
    )


def _reshaped(data: DataProto, old_dims: int, new: tuple[int, ...]) -> DataProto:
    """Every column with its first `old_dims` dimensions replaced by `new`."""
    batch = data.batch
    if batch is not None:
        tensors = {key: tensor.reshape(*new, *tensor.shape[old_dims:]) for key, tensor in tensors_of(batch).items()}
        batch = with_columns(batch, tensors, new[0])
    arrays = {key: array.reshape(*new, *array.shape[old_dims:]) for key, array in data.non_tensor_batch.items()}
    return type(data)(batch, arrays, data.meta_info)
