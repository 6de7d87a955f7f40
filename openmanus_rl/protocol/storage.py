"""Tensors as bytes at the price of a memory copy, and files that are there whole or not at all."""

import os
import pickle
import struct
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from tensordict import TensorDict

from openmanus_rl.errors import UserError

# What a packed tensor is: its bytes, dtype and shape. What has no plain memory (nested, sparse) is left as it is.
PackedTensor = tuple[Any, torch.dtype, tuple[int, ...]]
PackedBatch = tuple[dict[str, PackedTensor | Any], tuple[int, ...], bool]

_HEADER = struct.Struct("<8sQ")
_MAGIC = b"omrlDP01"


def pack_batch(batch: TensorDict, protocol: int) -> PackedBatch:
    """The batch as something that pickle copies once. From protocol 5 on the bytes may also travel out of band."""
    tensors = {key: pack_tensor(tensor, protocol) for key, tensor in batch.items()}
    return tensors, tuple(batch.batch_size), batch.device is not None


def unpack_batch(packed: PackedBatch) -> TensorDict:
    """The batch again, on the CPU. Its tensors can be written to; writable buffers are used as they are."""
    tensors, batch_size, on_device = packed
    columns = {key: unpack_tensor(value) if isinstance(value, tuple) else value for key, value in tensors.items()}
    return TensorDict(columns, batch_size=batch_size, device="cpu" if on_device else None)


def restore(cls: Callable[..., Any], batch: PackedBatch | None, *fields: Any) -> Any:
    """What unpickling calls: an object of `cls` with its batch and its other fields."""
    return cls(None if batch is None else unpack_batch(batch), *fields)


def pack_tensor(tensor: Any, protocol: int) -> PackedTensor | Any:
    """The tensor's memory, dtype and shape; what has no plain memory comes back as it is."""
    if not isinstance(tensor, torch.Tensor) or tensor.is_nested or tensor.layout is not torch.strided:
        return tensor
    rows = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    memory = rows.reshape(-1).view(torch.uint8).numpy()
    packed = pickle.PickleBuffer(memory.data) if protocol >= 5 else memory.tobytes()
    return packed, tensor.dtype, tuple(tensor.shape)


def unpack_tensor(packed: PackedTensor) -> torch.Tensor:
    """A tensor that can be written to, from what `pack_tensor` made."""
    memory, dtype, shape = packed
    if memoryview(memory).nbytes == 0:
        return torch.empty(shape, dtype=dtype)
    if memoryview(memory).readonly:
        # Bytes that others may read, such as those of a shared object store: writing there would change theirs.
        # numpy asks for huge pages, so its copy takes half the time of Python's or torch's.
        memory = np.frombuffer(memory, np.uint8).copy()
    return torch.frombuffer(memory, dtype=dtype).reshape(shape)


def save_pickled(value: Any, path: Path) -> None:
    """Write `value` with a header that tells its length, so that a cut file is known from a whole one."""

    def write(file: BinaryIO) -> None:
        file.write(_HEADER.pack(_MAGIC, 0))
        pickle.dump(value, file, protocol=5)
        length = file.tell() - _HEADER.size
        file.seek(0)
        file.write(_HEADER.pack(_MAGIC, length))

    write_atomically(path, write)


def load_pickled(path: Path) -> Any:
    """Read what `save_pickled` wrote. Unpickling runs code: load only files you trust."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            raise UserError(f"{path} is not a saved DataProto", "Give a file that DataProto.save_to_disk wrote.")
        _, expected = _HEADER.unpack(header)
        length = os.fstat(file.fileno()).st_size - _HEADER.size
        if length != expected:
            raise UserError(
                f"{path} is truncated or damaged: {length} bytes of data, where its header says {expected}",
                "Copy it again, or save it anew.",
            )
        return pickle.load(file)


def write_atomically(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write aside, flush, rename: at every moment `path` is the old file or the new one."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with aside.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the rename itself outlive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
