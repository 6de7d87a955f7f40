"""One row of a `DataProto`."""

from dataclasses import dataclass, field
from typing import Any

from tensordict import TensorDict


@dataclass(eq=False)
class DataProtoItem:
    """What `data[3]` is: the row's tensors (without the batch dimension) and values, and a copy of meta_info."""

    batch: TensorDict | None = None
    non_tensor_batch: dict[str, Any] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)
