"""Joining columns of the same rows: a key that both have must say the same in both."""

import reprlib
from typing import Any

from tensordict import TensorDict

from openmanus_rl.protocol.columns import Array
from openmanus_rl.protocol.equality import deep_equal, tensors_equal
from openmanus_rl.protocol.errors import DataProtoError
from openmanus_rl.protocol.tensordicts import tensors_of


def union_tensor_dict(tensor_dict1: TensorDict, tensor_dict2: TensorDict) -> TensorDict:
    """Add the tensors of the second to the first, and return the first. On an error the first is unchanged."""
    first, second = tensors_of(tensor_dict1), tensors_of(tensor_dict2)
    if tensor_dict1.batch_size != tensor_dict2.batch_size:
        raise DataProtoError(
            f"cannot unite tensors of batch size {tuple(tensor_dict1.batch_size)} (keys {sorted(first)}) "
            f"with {tuple(tensor_dict2.batch_size)} (keys {sorted(second)})"
        )
    for key, tensor in second.items():
        if key in first and not tensors_equal(first[key], tensor):
            raise _conflict("tensors", key, _form(first[key]), _form(tensor))
    tensor_dict1.update({key: tensor for key, tensor in second.items() if key not in first})
    return tensor_dict1


def union_numpy_dict(tensor_dict1: dict[str, Array], tensor_dict2: dict[str, Array]) -> dict[str, Array]:
    """Add the arrays of the second to the first, and return the first. On an error the first is unchanged."""
    for key, array in tensor_dict2.items():
        if key in tensor_dict1 and not deep_equal(tensor_dict1[key], array):
            raise _conflict("arrays", key, _form(tensor_dict1[key]), _form(array))
    tensor_dict1.update(tensor_dict2)
    return tensor_dict1


def union_meta_info(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both as a new dict."""
    for key, value in second.items():
        if key in first and not deep_equal(first[key], value):
            raise _conflict("meta_info", key, reprlib.repr(first[key]), reprlib.repr(value))
    return {**first, **second}


def _form(column: Any) -> str:
    return f"{column.dtype}{list(column.shape)}"


def _conflict(kind: str, key: str, first: str, second: str) -> DataProtoError:
    return DataProtoError(f"the {kind} have {key!r} on both sides with different values: {first} and {second}")
