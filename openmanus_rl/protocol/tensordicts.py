"""TensorDicts: from columns, with other columns, and as one that carries everything a `DataProto` has."""

from collections.abc import Mapping
from typing import Any, cast

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from openmanus_rl.protocol.columns import Array, object_column
from openmanus_rl.protocol.errors import DataProtoError, require_keys


def tensor_dict(tensors: Mapping[str, torch.Tensor]) -> TensorDict:
    """A TensorDict of columns, which must have the same number of rows."""
    first_key, first = next(iter(tensors.items()))
    for key, tensor in tensors.items():
        if tensor.ndim == 0:
            raise DataProtoError(f"the tensor {key!r} is one value, not a column with one entry per row")
        if tensor.size(0) != first.size(0):
            raise DataProtoError(
                f"the tensor {key!r} has {tensor.size(0)} rows (shape {list(tensor.shape)}), "
                f"but {first_key!r} has {first.size(0)} (shape {list(first.shape)})"
            )
    return TensorDict(dict(tensors), batch_size=[first.size(0)])


def tensors_of(batch: TensorDict | None) -> dict[str, torch.Tensor]:
    """The columns of a batch by name; none if there is no batch."""
    return {} if batch is None else cast(dict[str, torch.Tensor], dict(batch.items()))


def with_columns(batch: TensorDict, tensors: Mapping[str, torch.Tensor], rows: int) -> TensorDict:
    """A TensorDict of `rows` rows with these columns, on the device of `batch`."""
    return TensorDict(dict(tensors), batch_size=[rows], device=batch.device)


def renamed(tensors: Mapping[str, torch.Tensor], names: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """The same columns under new names, all renamed at once, so that two may change places."""
    require_keys(names, tensors, "batch")
    result: dict[str, torch.Tensor] = {}
    for key, tensor in tensors.items():
        name = names.get(key, key)
        if name in result:
            raise DataProtoError(f"after renaming {dict(names)}, two tensors would be called {name!r}")
        result[name] = tensor
    return result


def pack_columns(batch: TensorDict, arrays: Mapping[str, Array], meta_info: Mapping[str, Any]) -> TensorDict:
    """`batch` with arrays as non-tensor stacks and meta_info as non-tensor data. A name may be used once."""
    packed = batch.copy()
    for key, array in arrays.items():
        entries = [NonTensorData(value) for value in array.tolist()]
        _add(packed, key, NonTensorStack(*entries) if entries else NonTensorStack(batch_size=[]))
    for key, value in meta_info.items():
        _add(packed, key, NonTensorData(value, batch_size=batch.batch_size))
    return packed


def unpack_columns(packed: TensorDict) -> tuple[dict[str, torch.Tensor], dict[str, Array], dict[str, Any]]:
    """Tensors, arrays and meta_info of what `pack_columns` made."""
    tensors: dict[str, torch.Tensor] = {}
    arrays: dict[str, Array] = {}
    meta_info: dict[str, Any] = {}
    for key, value in cast(Mapping[str, Any], packed).items():
        if isinstance(value, NonTensorStack):
            arrays[key] = object_column([entry.data for entry in value.unbind(0)])
        elif isinstance(value, NonTensorData):
            meta_info[key] = value.data
        else:
            tensors[key] = value
    return tensors, arrays, meta_info


def _add(packed: TensorDict, key: str, value: Any) -> None:
    if key in tensors_of(packed):
        raise DataProtoError(f"{key!r} names two things, so one TensorDict cannot hold both: rename one")
    packed[key] = value
