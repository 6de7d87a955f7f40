"""`DataProto`: rows of tensors and objects, and what holds for all of them."""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from tensordict import TensorDict
from torch.utils.data import DataLoader

from openmanus_rl.protocol.columns import Array, Rows, as_array, object_column, only_keys, row_positions, unfold_columns
from openmanus_rl.protocol.concat import Pad, concat_arrays, concat_meta_info, concat_tensors
from openmanus_rl.protocol.errors import DataProtoError, require_keys
from openmanus_rl.protocol.item import DataProtoItem
from openmanus_rl.protocol.storage import load_pickled, pack_batch, restore, save_pickled
from openmanus_rl.protocol.tensordicts import (
    pack_columns,
    renamed,
    tensor_dict,
    tensors_of,
    unpack_columns,
    with_columns,
)
from openmanus_rl.protocol.union import union_meta_info, union_numpy_dict, union_tensor_dict

RowSlice = slice


class DataProtoConfig:
    """What holds for every `DataProto` of the process."""

    auto_padding: bool = False
    """Whether any number of rows may be divided among workers; `auto_padding_key` in meta_info says so for one."""
    auto_padding_key = "_auto_padding"


@dataclass(eq=False)
class DataProto:
    """Rows as columns: tensors in `batch`, numpy arrays in `non_tensor_batch`; `meta_info` holds for all rows.

    Every column has one entry per row. The two dicts belong to this object alone: what is made from it gets its own.
    Slices share the memory of tensors and arrays, as they do in torch and numpy.
    """

    batch: Any = None
    """A TensorDict, or None without tensors; typed so that columns can be indexed without asking first."""
    non_tensor_batch: dict[str, Array] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.non_tensor_batch = dict(self.non_tensor_batch or {})
        self.meta_info = dict(self.meta_info or {})
        self.check_consistency()

    # Making one

    @classmethod
    def from_single_dict(
        cls, data: Mapping[str, Any], meta_info: Mapping[str, Any] | None = None, auto_padding: bool = False
    ) -> Self:
        """Sort a dict of tensors and numpy arrays into `batch` and `non_tensor_batch`."""
        for key, value in data.items():
            if not isinstance(value, torch.Tensor | np.ndarray):
                raise DataProtoError(f"{key!r} is a {type(value).__name__}, not a tensor or a numpy array")
        tensors = {key: value for key, value in data.items() if isinstance(value, torch.Tensor)}
        arrays = {key: value for key, value in data.items() if isinstance(value, np.ndarray)}
        return cls.from_dict(tensors, arrays, meta_info, auto_padding=auto_padding)

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, torch.Tensor] | None = None,
        non_tensors: Mapping[str, Any] | None = None,
        meta_info: Mapping[str, Any] | None = None,
        num_batch_dims: int = 1,
        auto_padding: bool = False,
    ) -> Self:
        """Make one from columns; lists in `non_tensors` become object arrays."""
        if num_batch_dims != 1:
            raise DataProtoError(f"rows are the first dimension alone, num_batch_dims=1, not {num_batch_dims}")
        arrays = {
            key: value if isinstance(value, np.ndarray) else object_column(value)
            for key, value in (non_tensors or {}).items()
        }
        info = dict(meta_info or {})
        if auto_padding:
            info[DataProtoConfig.auto_padding_key] = True
        return cls(tensor_dict(tensors) if tensors else None, arrays, info)

    @classmethod
    def from_tensordict(
        cls, tensor_dict: TensorDict, meta_info: Mapping[str, Any] | None = None, num_batch_dims: int = 1
    ) -> Self:
        """The inverse of `to_tensordict`."""
        tensors, arrays, info = unpack_columns(tensor_dict)
        return cls.from_dict(tensors, arrays, {**info, **(meta_info or {})}, num_batch_dims)

    def to_tensordict(self) -> TensorDict:
        """All in one TensorDict: arrays as non-tensor stacks, meta_info as non-tensor data."""
        batch = TensorDict({}, batch_size=[len(self)]) if self.batch is None else self.batch
        return pack_columns(batch, self.non_tensor_batch, self.meta_info)

    # Looking at it

    def __len__(self) -> int:
        if self.batch is not None:
            return int(self.batch.batch_size[0])
        return len(next(iter(self.non_tensor_batch.values()), ()))

    def check_consistency(self) -> None:
        """Refuse columns of different length; called whenever a `DataProto` is made."""
        if self.batch is not None and len(self.batch.batch_size) != 1:
            raise DataProtoError(f"batch has the batch size {tuple(self.batch.batch_size)}; rows are one dimension")
        rows = None if self.batch is None else ("batch", len(self))
        for key, array in self.non_tensor_batch.items():
            if not isinstance(array, np.ndarray):
                raise DataProtoError(f"non_tensor_batch[{key!r}] is a {type(array).__name__}, not a numpy array")
            if array.ndim == 0:
                raise DataProtoError(f"non_tensor_batch[{key!r}] is one value, not a column with one entry per row")
            rows = rows or (repr(key), len(array))
            if len(array) != rows[1]:
                raise DataProtoError(
                    f"non_tensor_batch[{key!r}] has {len(array)} rows (shape {list(array.shape)}), "
                    f"but {rows[0]} has {rows[1]}"
                )

    def print_size(self, prefix: str = "") -> None:
        """Print the memory of tensors and arrays; objects count as their references."""
        tensors = sum(tensor.nbytes for tensor in tensors_of(self.batch).values())
        arrays = sum(array.nbytes for array in self.non_tensor_batch.values())
        message = f"Size of tensordict: {tensors / 2**30} GB, size of non_tensor_batch: {arrays / 2**30} GB"
        print(f"{prefix}, {message}" if prefix else message)

    def get_data_info(self) -> str:
        """One line per column: name, shape, dtype, device; one per entry of meta_info: name and type."""
        lines = ["batch"]
        lines += [f"  {key}: {tuple(t.shape)} ({t.dtype}) {t.device}" for key, t in tensors_of(self.batch).items()]
        lines.append("non_tensor_batch")
        lines += [f"  {key}: ndarray{array.shape} ({array.dtype})" for key, array in self.non_tensor_batch.items()]
        lines.append("meta_info")
        lines += [f"  {key}: {type(value).__name__}" for key, value in self.meta_info.items()]
        return "\n".join(lines)

    def is_padding_enabled(self) -> bool:
        """Whether the rows may be divided unequally: `DataProtoConfig.auto_padding`, or this one's own mark."""
        return DataProtoConfig.auto_padding or bool(self.meta_info.get(DataProtoConfig.auto_padding_key, False))

    # Rows

    @overload
    def __getitem__(self, item: int) -> DataProtoItem: ...

    @overload
    def __getitem__(self, item: RowSlice | Rows) -> Self: ...

    def __getitem__(self, item: int | RowSlice | Rows) -> DataProtoItem | Self:
        """`data[3]` is one row, a `DataProtoItem`; slices, positions and masks make a `DataProto`."""
        if isinstance(item, slice):
            return self.slice(item.start, item.stop, item.step)
        if isinstance(item, int | np.integer) or (isinstance(item, np.ndarray | torch.Tensor) and item.ndim == 0):
            row = int(np.arange(len(self))[int(item)])
            return DataProtoItem(
                batch=None if self.batch is None else self.batch[row],
                non_tensor_batch={key: array[row] for key, array in self.non_tensor_batch.items()},
                meta_info=dict(self.meta_info),
            )
        if isinstance(item, list | np.ndarray | torch.Tensor):
            return self.select_idxs(item)
        raise TypeError(f"rows are chosen by an int, a slice, a list, an array or a tensor, not {type(item).__name__}")

    def select_idxs(self, idxs: Rows) -> Self:
        """The rows at these positions, or where this mask is true, as copies."""
        return self._take(row_positions(idxs, len(self)))

    def slice(self, start: int | None = None, end: int | None = None, step: int | None = None) -> Self:
        """The rows `start:end:step`."""
        rows = slice(start, end, step)
        if step is not None and step < 0:  # torch knows no negative steps
            return self._take(np.arange(len(self))[rows].copy())
        return self._take(rows)

    def split(self, split_size: int) -> list[Self]:
        """Pieces of `split_size` rows, the last with what is left; without rows one piece without rows."""
        if split_size < 1:
            raise DataProtoError(f"split_size must be at least 1, not {split_size}")
        return [self[start : start + split_size] for start in range(0, max(len(self), 1), split_size)]

    def chunk(self, chunks: int) -> list[Self]:
        """Exactly `chunks` pieces of equal size; with padding enabled of as equal a size as the rows allow."""
        if chunks < 1:
            raise DataProtoError(f"chunks must be at least 1, not {chunks}")
        size, longer = divmod(len(self), chunks)
        if longer and not self.is_padding_enabled():
            raise DataProtoError(
                f"{len(self)} rows do not divide into {chunks} equal chunks; "
                "pad them with pad_dataproto_to_divisor, or allow unequal chunks with auto_padding"
            )
        ends = np.cumsum([size + (index < longer) for index in range(chunks)]).tolist()
        return [self[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> Self:
        """Every row `repeat_times` times: side by side (`a a b b`), or the whole over again (`a b a b`)."""
        rows = np.arange(len(self))
        return self._take(np.repeat(rows, repeat_times) if interleave else np.tile(rows, repeat_times))

    def sample_level_repeat(self, repeat_times: Rows) -> Self:
        """Row i `repeat_times[i]` times, side by side."""
        times = as_array(repeat_times)
        if times.shape != (len(self),):
            raise DataProtoError(f"repeat_times has shape {list(times.shape)}, but there are {len(self)} rows")
        return self._take(np.repeat(np.arange(len(self)), times.astype(np.int64)))

    def reorder(self, indices: Rows) -> None:
        """Put the rows in this order, in place."""
        self._become(self.select_idxs(indices))

    def padding(self, padding_size: int, padding_candidate: Literal["first", "last"] = "last") -> None:
        """Append the first or last row `padding_size` times, in place."""
        if padding_candidate not in ("first", "last"):
            raise DataProtoError(f"padding repeats the 'first' or the 'last' row, not {padding_candidate!r}")
        if not isinstance(padding_size, int | np.integer) or padding_size < 0:
            raise DataProtoError(f"padding_size must be a number of rows, not {padding_size!r}")
        if padding_size and not len(self):
            raise DataProtoError(f"there is no row to repeat for a padding of {padding_size}")
        row = 0 if padding_candidate == "first" else len(self) - 1
        self._become(self._take(np.concatenate([np.arange(len(self)), np.full(padding_size, row)])))

    def make_iterator(
        self,
        mini_batch_size: int,
        epochs: int,
        seed: int | None = None,
        dataloader_kwargs: dict[str, Any] | None = None,
    ) -> Iterator[Self]:
        """Mini-batches for `epochs` passes, through a torch DataLoader (`dataloader_kwargs={"shuffle": True}`)."""
        if mini_batch_size < 1 or len(self) % mini_batch_size:
            raise DataProtoError(f"{len(self)} rows do not divide into mini-batches of {mini_batch_size}")
        loader: DataLoader[Any] = DataLoader(
            range(len(self)),  # type: ignore[arg-type]  # positions are enough of a dataset: rows are taken together
            batch_size=mini_batch_size,
            collate_fn=self.select_idxs,
            generator=None if seed is None else torch.Generator().manual_seed(seed),
            **(dataloader_kwargs or {}),
        )
        return (mini_batch for _ in range(epochs) for mini_batch in loader)

    # Columns

    def select(
        self,
        batch_keys: Iterable[str] | None = None,
        non_tensor_batch_keys: Iterable[str] | None = None,
        meta_info_keys: Iterable[str] | None = None,
        deepcopy: bool = False,
    ) -> Self:
        """Some columns; None means all. As in verl, unknown non-tensor and meta_info keys are passed over."""
        tensors = tensors_of(self.batch)
        names = list(tensors if batch_keys is None else batch_keys)
        require_keys(names, tensors, "batch")
        selected = type(self)(
            None if self.batch is None else self.batch.select(*names),
            only_keys(self.non_tensor_batch, non_tensor_batch_keys),
            only_keys(self.meta_info, meta_info_keys),
        )
        if deepcopy:
            selected.batch = None if selected.batch is None else selected.batch.clone()
            selected.non_tensor_batch = copy.deepcopy(selected.non_tensor_batch)
            selected.meta_info = copy.deepcopy(selected.meta_info)
        return selected

    def pop(
        self,
        batch_keys: Iterable[str] | None = None,
        non_tensor_batch_keys: Iterable[str] | None = None,
        meta_info_keys: Iterable[str] | None = None,
    ) -> Self:
        """Take columns out of this one, as a new one. An unknown key is an error, and nothing is taken."""
        tensor_names, array_names, info_names = (
            list(keys or ()) for keys in (batch_keys, non_tensor_batch_keys, meta_info_keys)
        )
        tensors = tensors_of(self.batch)
        require_keys(tensor_names, tensors, "batch")
        require_keys(array_names, self.non_tensor_batch, "non_tensor_batch")
        require_keys(info_names, self.meta_info, "meta_info")
        if self.batch is not None:
            self.batch = self.batch.exclude(*tensor_names)
        return type(self).from_dict(
            {key: tensors[key] for key in tensor_names},
            {key: self.non_tensor_batch.pop(key) for key in array_names},
            {key: self.meta_info.pop(key) for key in info_names},
        )

    def rename(self, old_keys: str | Sequence[str], new_keys: str | Sequence[str]) -> Self:
        """Rename tensors, in place; returns itself."""
        old = [old_keys] if isinstance(old_keys, str) else list(old_keys)
        new = [new_keys] if isinstance(new_keys, str) else list(new_keys)
        if len(old) != len(new):
            raise DataProtoError(f"{len(old)} old keys {old}, but {len(new)} new keys {new}")
        tensors = renamed(tensors_of(self.batch), dict(zip(old, new, strict=True)))
        if self.batch is not None:
            self.batch = with_columns(self.batch, tensors, len(self))
        return self

    def union(self, other: "DataProto") -> Self:
        """Add the other's columns and meta_info, in place; returns itself. What both have must be equal in both."""
        if self._has_columns() and other._has_columns() and len(self) != len(other):
            raise DataProtoError(
                f"cannot unite {len(self)} rows (keys {self._column_names()}) "
                f"with {len(other)} rows (keys {other._column_names()})"
            )
        meta_info = union_meta_info(self.meta_info, other.meta_info)
        arrays = union_numpy_dict(dict(self.non_tensor_batch), other.non_tensor_batch)
        if other.batch is not None:
            own = other.batch if self.batch is None else self.batch
            self.batch = union_tensor_dict(own.copy(), other.batch)
        self.non_tensor_batch, self.meta_info = arrays, meta_info
        return self

    @staticmethod
    def concat(data: Sequence["DataProto"], *, pad: Mapping[str, Pad] | None = None) -> "DataProto":
        """The rows of all, one after another. `pad` names the tensors whose shorter rows are filled, and with what.

        meta_info must agree, but for `metrics`, which become a list of what each part measured.
        """
        parts = list(data)
        if not parts:
            raise DataProtoError("there is nothing to concatenate: the list of DataProtos is empty")
        meta_info = concat_meta_info([part.meta_info for part in parts])
        filled = [part for part in parts if part._has_columns()]
        if not filled:
            return type(parts[0])(meta_info=meta_info)
        tensors = concat_tensors([tensors_of(part.batch) for part in filled], pad or {})
        arrays = concat_arrays([part.non_tensor_batch for part in filled])
        batch = filled[0].batch
        if batch is not None:
            batch = with_columns(batch, tensors, sum(map(len, filled)))
        return type(parts[0])(batch, arrays, meta_info)

    def unfold_column_chunks(self, n_split: int, split_keys: Sequence[str] | None = None) -> Self:
        """Cut every row into `n_split` rows: `split_keys` along their second dimension, the other columns repeated."""
        unfolded = self.repeat(n_split, interleave=True)
        for key in split_keys or ():
            if self.batch is not None and unfolded.batch is not None and key in tensors_of(self.batch):
                unfolded.batch[key] = unfold_columns(key, self.batch[key], n_split)
            else:
                require_keys([key], self._column_names(), "DataProto")
                unfolded.non_tensor_batch[key] = unfold_columns(key, self.non_tensor_batch[key], n_split)
        return unfolded

    # Elsewhere

    def to(self, device: torch.device | str) -> Self:
        """Move the tensors to a device, in place; returns itself."""
        if self.batch is not None:
            self.batch = self.batch.to(device)
        return self

    def save_to_disk(self, filepath: str | PathLike[str]) -> None:
        """Write it to a file that is there whole or not at all."""
        save_pickled(self, Path(filepath))

    @staticmethod
    def load_from_disk(filepath: str | PathLike[str]) -> "DataProto":
        """Read a saved one. Unpickling runs code: load only files you trust."""
        loaded: DataProto = load_pickled(Path(filepath))
        return loaded

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        batch = None if self.batch is None else pack_batch(self.batch, protocol)
        return restore, (type(self), batch, self.non_tensor_batch, self.meta_info)

    def __copy__(self) -> Self:
        return self.select()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.select(deepcopy=True)

    def _has_columns(self) -> bool:
        return self.batch is not None or bool(self.non_tensor_batch)

    def _column_names(self) -> list[str]:
        return [*tensors_of(self.batch), *self.non_tensor_batch]

    def _take(self, rows: RowSlice | Array) -> Self:
        arrays = {key: array[rows] for key, array in self.non_tensor_batch.items()}
        batch = self.batch
        if batch is not None:
            batch = batch[rows if isinstance(rows, slice) else torch.from_numpy(rows)]
        return type(self)(batch, arrays, self.meta_info)

    def _become(self, other: "DataProto") -> None:
        self.batch, self.non_tensor_batch = other.batch, other.non_tensor_batch
