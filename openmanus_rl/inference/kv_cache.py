"""Keys and values of many sessions in one block of memory, read by attention in place.

Per layer there are two tensors [rows, heads, capacity, head_dim]; a session owns one row, filled from position 0
without padding. Sessions that decode together lie in neighbouring rows, so what attention reads is a view and nothing
is gathered. Rows and capacity double as they are needed.
"""

from dataclasses import dataclass

import torch
from transformers import Cache


@dataclass(frozen=True)
class Placement:
    """Where the new keys of one forward go, and which keys it sees."""

    rows: slice | torch.Tensor
    """The rows of the batch: a slice is read in place, a tensor of indices is gathered."""
    positions_RT: torch.Tensor
    """The position of each new token within its row; also what it may see: everything up to itself."""
    length: int
    """Keys in view: one more than the highest position."""
    start: int | None
    """The first position of every row where the rows are all alike, else None."""

    @property
    def models_own_mask_is_right(self) -> bool:
        """A causal mask does for rows that are all alike, if they start anew or add one token; it may be faster."""
        return self.start is not None and (self.start == 0 or self.positions_RT.shape[1] == 1)

    def attention_mask(self, dtype: torch.dtype) -> torch.Tensor | None:
        """What to add to attention scores, [R, 1, T, L]: 0 where a token may look, the lowest number elsewhere."""
        if self.models_own_mask_is_right:
            return None
        keys_L = torch.arange(self.length, device=self.positions_RT.device)
        hidden_R1TL = (keys_L > self.positions_RT.unsqueeze(-1)).unsqueeze(1)
        return torch.zeros(hidden_R1TL.shape, dtype=dtype, device=keys_L.device).masked_fill_(
            hidden_R1TL, torch.finfo(dtype).min
        )


class SlotCache(Cache):
    """The cache handed to a transformers model: `place` says where the next forward writes and what it reads.

    Memory is zeroed when it is taken: attention multiplies hidden values by 0, which must not meet a NaN.
    """

    def __init__(self, max_rows: int, max_length: int) -> None:
        super().__init__(layers=[])
        self._max_rows = max_rows
        self._max_length = max_length
        self._rows, self._capacity = cache_shape(1, 1, max_rows, max_length)
        self._stores: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._placement: Placement | None = None
        self._row_index_R1: torch.Tensor | None = None

    def reserve(self, rows: int, length: int) -> None:
        """Make room for `rows` rows of `length` positions."""
        if rows <= self._rows and length <= self._capacity:
            return
        self._rows = _doubled(self._rows, rows, self._max_rows)
        self._capacity = _doubled(self._capacity, length, self._max_length)
        self._stores = [(self._enlarged(keys), self._enlarged(values)) for keys, values in self._stores]

    def place(self, placement: Placement) -> None:
        """Set where the next forward writes and reads; room for it is reserved already."""
        self._placement = placement
        if placement.start is None:
            rows = placement.rows
            device = placement.positions_RT.device
            index_R = torch.arange(rows.start, rows.stop, device=device) if isinstance(rows, slice) else rows
            self._row_index_R1 = index_R.unsqueeze(1)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values ([R, heads, T, head_dim]) and return all that the batch's rows hold."""
        if layer_idx == len(self._stores):
            self._stores.append((self._allocate(key_states), self._allocate(value_states)))
        keys, values = self._stores[layer_idx]
        return self._write_and_read(keys, key_states), self._write_and_read(values, value_states)

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a row over another row."""
        for store in (store for pair in self._stores for store in pair):
            store[target, :, :length] = store[source, :, :length]

    def swap_rows(self, a: int, b: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        for store in (store for pair in self._stores for store in pair):
            kept = store[a, :, :length].clone()
            store[a, :, :length] = store[b, :, :length]
            store[b, :, :length] = kept

    def rows_are_equal(self, rows: int) -> bool:
        """Whether the first rows hold the same bits."""
        stores = [store[:rows] for pair in self._stores for store in pair]
        return all(torch.equal(store, store[:1].expand_as(store)) for store in stores)

    def clear(self) -> None:
        """Give the memory back; the next forward takes new, zeroed memory of the same size."""
        self._stores = []

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The position of the first new token, for the model's own mask; asked only where the rows are all alike."""
        return (self._placement and self._placement.start) or 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """How many keys the model's own mask spans, and from which position."""
        return self.get_seq_length(layer_idx) + query_length, 0

    def _write_and_read(self, store: torch.Tensor, new_RHTD: torch.Tensor) -> torch.Tensor:
        placement = self._placement
        assert placement is not None, "place() comes before the forward"
        rows, start = placement.rows, placement.start
        if start is None:
            store[self._row_index_R1, :, placement.positions_RT] = new_RHTD.transpose(1, 2)
        else:
            store[rows, :, start : start + new_RHTD.shape[2]] = new_RHTD
        return store[rows, :, : placement.length]

    def _allocate(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros(self._rows, like.shape[1], self._capacity, like.shape[3])

    def _enlarged(self, store: torch.Tensor) -> torch.Tensor:
        larger = self._allocate(store)
        larger[: store.shape[0], :, : store.shape[2]] = store
        return larger


def cache_shape(rows: int, length: int, max_rows: int, max_length: int) -> tuple[int, int]:
    """The rows and positions that memory is taken for when `rows` rows of `length` positions are needed."""
    return _doubled(min(8, max_rows), rows, max_rows), _doubled(min(128, max_length), length, max_length)


def _doubled(size: int, needed: int, limit: int) -> int:
    """`size` doubled until it holds `needed`, but no more than `limit`."""
    while size < needed:
        size *= 2
    return min(size, limit)
