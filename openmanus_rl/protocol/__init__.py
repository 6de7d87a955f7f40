"""`DataProto`: the one type that crosses between rooms, processes and machines.

It has the public names of verl's class of that name, so that code written for that runs here.
"""

from openmanus_rl.protocol.columns import list_of_dict_to_dict_of_list
from openmanus_rl.protocol.concat import Pad
from openmanus_rl.protocol.dataproto import DataProto, DataProtoConfig
from openmanus_rl.protocol.errors import DataProtoError
from openmanus_rl.protocol.future import DataProtoFuture
from openmanus_rl.protocol.item import DataProtoItem
from openmanus_rl.protocol.reshape import (
    collate_fn,
    fold_batch_dim,
    pad_dataproto_to_divisor,
    unfold_batch_dim,
    unpad_dataproto,
)
from openmanus_rl.protocol.union import union_numpy_dict, union_tensor_dict

__all__ = [
    "DataProto",
    "DataProtoConfig",
    "DataProtoError",
    "DataProtoFuture",
    "DataProtoItem",
    "Pad",
    "collate_fn",
    "fold_batch_dim",
    "list_of_dict_to_dict_of_list",
    "pad_dataproto_to_divisor",
    "unfold_batch_dim",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
]
