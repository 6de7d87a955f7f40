"""Whatever the rows are, what is undone leaves no trace."""

import copy
import pickle

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from same_proto import assert_same

from openmanus_rl.protocol import (
    DataProto,
    collate_fn,
    fold_batch_dim,
    pad_dataproto_to_divisor,
    unfold_batch_dim,
    unpad_dataproto,
)

properties = settings(max_examples=40)

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
KEYS = st.sampled_from(["obs", "ids", "mask", "reward"])
SCALARS = st.none() | st.integers(-5, 5) | st.floats(width=32) | st.text("abc", max_size=3)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.text("xy", max_size=1), SCALARS, max_size=2)


def object_array(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


@st.composite
def tensors(draw, rows):
    shape = (rows, *draw(st.lists(st.integers(0, 3), max_size=2)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = torch.randn(shape, generator=generator) * 10
    if draw(st.booleans()) and values.numel():
        values.view(-1)[0] = float("nan")
    tensor = (
        values.nan_to_num().abs().to(dtype)
        if not (dtype := draw(st.sampled_from(DTYPES))).is_floating_point
        else values.to(dtype)
    )
    return tensor.transpose(1, 2) if tensor.ndim == 3 and draw(st.booleans()) else tensor


@st.composite
def arrays(draw, rows):
    kind = draw(st.sampled_from(["objects", "floats", "texts", "matrix"]))
    if kind == "floats":
        return np.array(draw(st.lists(st.floats(), min_size=rows, max_size=rows)), dtype=np.float64)
    if kind == "texts":
        return np.array(draw(st.lists(st.text("ab", max_size=3), min_size=rows, max_size=rows)), dtype="U3")
    if kind == "matrix":
        return np.arange(rows * 2, dtype=object).reshape(rows, 2)
    return object_array(draw(st.lists(VALUES, min_size=rows, max_size=rows)))


@st.composite
def protos(draw, multiple_of=1):
    rows = draw(st.integers(0, 12 // multiple_of)) * multiple_of
    kinds = draw(st.sampled_from(["tensors", "arrays", "both"]))
    few = {"min_size": 1, "max_size": 3}
    return DataProto.from_dict(
        draw(st.dictionaries(KEYS, tensors(rows), **few)) if kinds != "arrays" else None,
        draw(st.dictionaries(KEYS.map(str.upper), arrays(rows), **few)) if kinds != "tensors" else None,
        draw(st.dictionaries(st.text("mn", max_size=2), st.integers(), max_size=2)),
    )


@properties
@given(protos(multiple_of=3))
def test_chunks_concatenate_to_what_they_were(data):
    chunks = data.chunk(3)
    assert [len(chunk) for chunk in chunks] == [len(data) // 3] * 3
    assert_same(DataProto.concat(chunks), data)


@properties
@given(protos(), st.integers(1, 5))
def test_unequal_chunks_concatenate_to_what_they_were(data, chunks):
    data.meta_info.update(DataProto.from_dict(auto_padding=True).meta_info)
    pieces = data.chunk(chunks)
    sizes = [len(piece) for piece in pieces]
    assert len(pieces) == chunks
    assert max(sizes) - min(sizes) <= 1
    assert_same(DataProto.concat(pieces), data)


@properties
@given(protos(), st.integers(1, 5))
def test_splits_concatenate_to_what_they_were(data, size):
    assert_same(DataProto.concat(data.split(size)), data)


@properties
@given(protos(), st.randoms(use_true_random=False))
def test_reordering_and_back_changes_nothing(data, random):
    order = list(range(len(data)))
    random.shuffle(order)
    reordered = copy.deepcopy(data)
    reordered.reorder(torch.tensor(order, dtype=torch.int64))
    reordered.reorder(torch.tensor(np.argsort(order), dtype=torch.int64))
    assert_same(reordered, data)


@properties
@given(protos(), st.integers(1, 7))
def test_padding_to_a_divisor_and_back_changes_nothing(data, divisor):
    padded, pad_size = pad_dataproto_to_divisor(data, divisor)
    assert len(padded) % divisor == 0
    assert pad_size < divisor
    assert_same(unpad_dataproto(padded, pad_size), data)


@properties
@given(protos(multiple_of=2))
def test_folding_and_back_changes_nothing(data):
    folded = fold_batch_dim(data, max(len(data) // 2, 1))
    assert_same(unfold_batch_dim(folded), data)


@properties
@given(protos(), st.integers(2, 5))
def test_pickling_and_back_changes_nothing(data, protocol):
    assert_same(pickle.loads(pickle.dumps(data, protocol=protocol)), data)


@properties
@given(protos())
def test_pickling_with_buffers_out_of_band_changes_nothing(data):
    buffers = []
    stream = pickle.dumps(data, protocol=5, buffer_callback=buffers.append)
    assert_same(pickle.loads(stream, buffers=[bytes(buffer.raw()) for buffer in buffers]), data)


@properties
@given(data=protos())
def test_saving_and_loading_changes_nothing(tmp_path, data):
    data.save_to_disk(tmp_path / "data.pt")
    assert_same(DataProto.load_from_disk(tmp_path / "data.pt"), data)


@properties
@given(protos())
def test_copies_are_the_same(data):
    assert_same(copy.copy(data), data)
    assert_same(copy.deepcopy(data), data)


@properties
@given(protos(), st.data())
def test_a_mask_and_its_positions_choose_the_same_rows(data, draw):
    mask = draw.draw(st.lists(st.booleans(), min_size=len(data), max_size=len(data)))
    positions = np.flatnonzero(mask)
    chosen = data[positions]
    for rows in (positions.tolist(), torch.tensor(mask, dtype=torch.bool), np.array(mask, dtype=bool)):
        assert_same(data[rows], chosen)


@properties
@given(protos())
def test_taking_columns_out_and_uniting_them_changes_nothing(data):
    original = copy.deepcopy(data)
    tensor_keys = list(data.batch.keys())[:1] if data.batch is not None else []
    taken = data.pop(tensor_keys, list(data.non_tensor_batch), list(data.meta_info)[:1])
    assert_same(data.union(taken), original)


@properties
@given(protos())
def test_rows_collate_to_the_tensors_they_were(data):
    if len(data) and data.batch is not None:
        collated = collate_fn([data[row] for row in range(len(data))])
        assert_same(collated.select(non_tensor_batch_keys=[]), data.select(non_tensor_batch_keys=[], meta_info_keys=[]))
