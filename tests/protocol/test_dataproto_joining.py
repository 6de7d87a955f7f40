"""Concatenating rows and uniting columns."""

import numpy as np
import pytest
import torch
from same_proto import assert_same, example, labels
from tensordict import TensorDict

from openmanus_rl.protocol import DataProto, DataProtoError, Pad, union_numpy_dict, union_tensor_dict

NAN = float("nan")


def sequences(rows: int, length: int, value: int) -> DataProto:
    return DataProto.from_dict({"ids": torch.full((rows, length), value)}, {"label": [f"{value}"] * rows})


def test_concatenating_nothing_is_refused():
    with pytest.raises(DataProtoError, match="list of DataProtos is empty"):
        DataProto.concat([])


def test_protos_without_tensors_are_concatenated():
    parts = [DataProto.from_dict(non_tensors={"label": [name]}) for name in "ab"]
    assert labels(DataProto.concat(parts)) == ["a", "b"]


def test_a_proto_without_columns_adds_no_rows():
    assert_same(DataProto.concat([DataProto(), example(2), DataProto()]), example(2))
    assert len(DataProto.concat([DataProto(), DataProto()])) == 0


def test_a_part_without_rows_may_have_rows_of_any_length():
    assert_same(DataProto.concat([sequences(0, 9, 0), sequences(2, 3, 1)]), sequences(2, 3, 1))


def test_rows_of_different_length_are_refused_with_key_and_shapes():
    with pytest.raises(DataProtoError, match=r"'ids': shape \[2, 3\] and shape \[1, 5\].*pad="):
        DataProto.concat([sequences(2, 3, 1), sequences(1, 5, 2)])


def test_rows_of_different_length_are_padded_on_request_on_either_side():
    parts = [sequences(1, 2, 1), sequences(1, 4, 2)]
    right = DataProto.concat(parts, pad={"ids": Pad(-1)})
    assert right.batch["ids"].tolist() == [[1, 1, -1, -1], [2, 2, 2, 2]]
    left = DataProto.concat(parts, pad={"ids": Pad(0, side="left")})
    assert left.batch["ids"].tolist() == [[0, 0, 1, 1], [2, 2, 2, 2]]
    assert labels(left) == ["1", "2"]


def test_padding_keeps_the_dtype_and_fills_every_differing_dimension():
    parts = [DataProto.from_dict({"mask": torch.ones(1, 3, length, dtype=torch.bool)}) for length in (1, 2)]
    mask = DataProto.concat(parts, pad={"mask": Pad(False)}).batch["mask"]
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[True, False]] * 3, [[True, True]] * 3]


def test_a_pad_that_means_nothing_is_refused():
    with pytest.raises(DataProtoError, match="'rigth'"):
        Pad(0, side="rigth")
    with pytest.raises(DataProtoError, match=r"'id'. Did you mean ids\?"):
        DataProto.concat([sequences(1, 2, 1)], pad={"id": Pad(0)})
    with pytest.raises(DataProtoError, match=r"'ids'.*cannot add a dimension"):
        DataProto.concat(
            [sequences(1, 2, 1), DataProto.from_dict({"ids": torch.zeros(1)}, {"label": ["0"]})], pad={"ids": Pad(0)}
        )


def test_parts_with_different_columns_are_refused_by_name():
    with pytest.raises(DataProtoError, match="batch 0 has the key 'obs', batch 1 has not"):
        DataProto.concat([example(2), example(2).select(["long"])])
    with pytest.raises(DataProtoError, match="non_tensor_batch 1 has the key 'label', non_tensor_batch 0 has not"):
        DataProto.concat([example(2).select(non_tensor_batch_keys=[]), example(2)])
    with pytest.raises(DataProtoError, match="batch 1 has the key"):
        DataProto.concat([DataProto.from_dict(non_tensors={"label": ["a"]}), example(1)])


def test_ragged_lists_concatenate_as_if_they_had_come_in_one():
    rows = [["a"], ["b"], ["c", "d"], ["e", "f"], ["g"]]
    whole = DataProto.from_dict(non_tensors={"calls": rows})
    parts = [DataProto.from_dict(non_tensors={"calls": rows[start:end]}) for start, end in [(0, 2), (2, 4), (4, 5)]]
    assert parts[0].non_tensor_batch["calls"].shape == (2, 1)
    assert_same(DataProto.concat(parts), whole)


def test_number_arrays_of_different_shape_are_refused_with_key_and_shapes():
    parts = [DataProto.from_dict(non_tensors={"n": np.zeros((2, width))}) for width in (2, 3)]
    with pytest.raises(DataProtoError, match=r"'n': shape \[2, 2\] and shape \[2, 3\]"):
        DataProto.concat(parts)


def test_meta_info_of_all_parts_is_kept_and_a_conflict_is_named():
    parts = [example(1, step=1, a=1), example(1, step=1, b=NAN)]
    assert DataProto.concat(parts).meta_info.keys() == {"step", "a", "b"}
    with pytest.raises(DataProtoError, match=r"meta_info\['step'\] is 1 in one part and 2 in another"):
        DataProto.concat([example(1, step=1), example(1, step=2)])


def test_metrics_of_all_parts_become_lists():
    parts = [example(1, metrics={"loss": 1.0}), example(1, metrics={"loss": 2.0, "extra": 3}), example(1)]
    assert DataProto.concat(parts).meta_info == {"metrics": {"loss": [1.0, 2.0], "extra": [3]}}


def test_a_union_has_the_columns_of_both_and_is_made_in_place():
    data = example(2, step=1)
    other = DataProto.from_dict({"obs": torch.arange(2), "new": torch.zeros(2)}, {"more": ["x", "y"]}, {"lr": 2})
    assert data.union(other) is data
    assert set(data.batch.keys()) == {"obs", "long", "new"}
    assert set(data.non_tensor_batch) == {"label", "more"}
    assert data.meta_info == {"step": 1, "lr": 2}
    assert set(other.batch.keys()) == {"obs", "new"}


def test_unions_without_tensors_on_either_side_work():
    arrays = DataProto.from_dict(non_tensors={"label": ["row0", "row1"]})
    tensors = DataProto.from_dict({"obs": torch.arange(2)})
    both = DataProto.from_dict({"obs": torch.arange(2)}, {"label": ["row0", "row1"]})
    assert_same(arrays.select().union(tensors), both)
    assert_same(tensors.select().union(arrays), both)
    assert_same(arrays.select().union(arrays), arrays)
    assert_same(DataProto().union(both), both)
    assert_same(both.select().union(DataProto()), both)


def test_the_other_side_of_a_union_stays_its_own():
    tensors = DataProto.from_dict({"obs": torch.arange(2)})
    united = DataProto().union(tensors)
    united.batch["new"] = torch.zeros(2)
    assert set(tensors.batch.keys()) == {"obs"}


def test_a_union_of_different_lengths_is_refused_with_both_lengths():
    for other in (DataProto.from_dict({"new": torch.zeros(3)}), DataProto.from_dict(non_tensors={"new": [1, 2, 3]})):
        with pytest.raises(DataProtoError, match=r"2 rows .*'obs'.* 3 rows .*'new'"):
            example(2).union(other)


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (DataProto.from_dict({"new": torch.zeros(2), "obs": torch.tensor([0, 9])}), "obs"),
        (DataProto.from_dict({"obs": torch.tensor([0.0, 1.0])}), "obs"),
        (DataProto.from_dict({"long": torch.zeros(2, 3)}), "long"),
        (DataProto.from_dict({"new": torch.zeros(2)}, {"label": ["row0", "other"]}), "label"),
        (DataProto.from_dict({"new": torch.zeros(2)}, {"more": [1, 2]}, {"step": 2}), "step"),
    ],
)
def test_a_union_with_other_values_is_refused_by_key_and_changes_nothing(other, key):
    data = example(2, step=1)
    with pytest.raises(DataProtoError, match=f"'{key}' on both sides"):
        data.union(other)
    assert_same(data, example(2, step=1))


def cycle() -> np.ndarray:
    array = np.array([None], dtype=object)
    array[0] = array
    return array


def objects(*values: object) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


EQUAL_AND_NOT = [
    (lambda: np.array([1.0, NAN]), np.array([1.0, 2.0])),
    (lambda: np.array([1.0, NAN]), np.array([NAN, 1.0])),
    (lambda: np.array(["a", "b"]), np.array(["a", "c"])),
    (lambda: np.array(["NaT", "2020-01-01"], dtype="M8[D]"), np.array(["2020-01-01", "NaT"], dtype="M8[D]")),
    (lambda: np.arange(8).reshape(2, 2, 2), np.arange(8).reshape(2, 4)),
    (lambda: objects(float("nan"), "nan"), objects("nan", float("nan"))),
    (lambda: objects(np.float32("nan"), 1), objects(np.float32(0), 1)),
    (lambda: objects([1, float("nan")], {"a": float("nan")}), objects([1, float("nan")], {"a": 0.0})),
    (lambda: objects({"a": [np.array([1, 2])]}, None), objects({"a": [np.array([1, 3])]}, None)),
    (lambda: objects((1, 2), {"a": 1}), objects((1, 2), {"b": 1})),
    (lambda: objects([1, 2], 1), objects([1, 2, 3], 1)),
    (lambda: objects(torch.tensor([1.0, NAN]), 1), objects(torch.tensor([1.0, 2.0]), 1)),
    (cycle, objects(None)),
]


@pytest.mark.parametrize(("make", "different"), EQUAL_AND_NOT)
def test_arrays_are_united_when_equal_with_nan_and_nested_objects(make, different):
    united = union_numpy_dict({"key": make()}, {"key": make(), "new": np.zeros(2)})
    assert set(united) == {"key", "new"}
    with pytest.raises(DataProtoError, match="'key'"):
        union_numpy_dict({"key": make()}, {"key": different})


def test_tensors_are_united_in_the_first_when_equal_with_nan():
    first = TensorDict({"a": torch.tensor([1.0, NAN])}, batch_size=[2])
    second = TensorDict({"a": torch.tensor([1.0, NAN]), "b": torch.zeros(2)}, batch_size=[2])
    assert union_tensor_dict(first, second) is first
    assert set(first.keys()) == {"a", "b"}
    with pytest.raises(DataProtoError, match="'a'"):
        union_tensor_dict(first, TensorDict({"a": torch.tensor([NAN, 1.0])}, batch_size=[2]))
    with pytest.raises(DataProtoError, match=r"\(2,\).*'a'.*\(3,\).*'c'"):
        union_tensor_dict(first, TensorDict({"c": torch.zeros(3)}, batch_size=[3]))
