"""Choosing, dividing, repeating and padding rows."""

import numpy as np
import pytest
import torch
from same_proto import assert_same, example, labels

from openmanus_rl.protocol import (
    DataProto,
    DataProtoConfig,
    DataProtoError,
    DataProtoItem,
    collate_fn,
    fold_batch_dim,
    pad_dataproto_to_divisor,
    unfold_batch_dim,
    unpad_dataproto,
)


@pytest.mark.parametrize("index", [2, -4, np.int64(2), torch.tensor(2), np.array(2)])
def test_an_int_of_any_kind_gives_one_row(index):
    item = example(6, step=1)[index]
    assert isinstance(item, DataProtoItem)
    assert item.batch["obs"].item() == 2
    assert item.batch["long"].tolist() == [2, 2, 2, 2]
    assert item.non_tensor_batch == {"label": "row2"}
    assert item.meta_info == {"step": 1}


@pytest.mark.parametrize(
    "index",
    [
        [1, 3],
        [-5, -3],
        np.array([1, 3]),
        torch.tensor([1, 3]),
        torch.tensor([1, 3], dtype=torch.int32),
        [False, True, False, True, False, False],
        [np.bool_(False), np.bool_(True), np.bool_(False), np.bool_(True), np.bool_(False), np.bool_(False)],
        np.array([False, True, False, True, False, False]),
        torch.tensor([False, True, False, True, False, False]),
        slice(1, 5, 2),
    ],
)
def test_every_way_to_name_rows_gives_those_rows(index):
    chosen = example(6)[index]
    assert chosen.batch["obs"].tolist() == [1, 3]
    assert labels(chosen) == ["row1", "row3"]
    assert chosen.batch.batch_size == torch.Size([2])


def test_a_negative_step_reverses_the_rows():
    assert labels(example(3)[::-1]) == ["row2", "row1", "row0"]


def test_an_empty_list_chooses_no_rows():
    assert len(example(3)[[]]) == 0


def test_rows_beyond_the_end_are_an_index_error_with_and_without_tensors():
    for data in (example(3), DataProto.from_dict(non_tensors={"label": ["a", "b", "c"]})):
        for index in (3, [0, 3]):
            with pytest.raises(IndexError, match="3"):
                data[index]


def test_a_mask_of_the_wrong_length_is_refused_with_both_lengths():
    with pytest.raises(IndexError, match=r"3.*4"):
        example(3)[[True, False, True, True]]


@pytest.mark.parametrize("index", [[0.5, 1.5], np.zeros((2, 2), dtype=int)])
def test_what_cannot_name_rows_is_refused(index):
    with pytest.raises(DataProtoError, match="integers or bools"):
        example(3)[index]


def test_iterating_yields_every_row_once():
    assert [item.non_tensor_batch["label"] for item in example(3)] == ["row0", "row1", "row2"]


@pytest.mark.parametrize(
    "make",
    [
        lambda data: data[:2],
        lambda data: data[[0, 1]],
        lambda data: data[0],
        lambda data: data.slice(0, 2),
        lambda data: data.select(),
        lambda data: data.select(batch_keys=["obs"]),
        lambda data: data.chunk(2)[0],
        lambda data: data.split(2)[0],
        lambda data: data.repeat(2),
        lambda data: data.sample_level_repeat([1] * len(data)),
        lambda data: data.unfold_column_chunks(2, ["long"]),
        lambda data: DataProto.concat([data, data]),
        lambda data: DataProto.concat([data]),
        lambda data: next(data.make_iterator(2, epochs=1)),
        lambda data: pad_dataproto_to_divisor(data, 2)[0],
        lambda data: pad_dataproto_to_divisor(data, 4)[0],
        lambda data: unpad_dataproto(data, 0),
        lambda data: fold_batch_dim(data, 2),
        lambda data: DataProto.from_dict(meta_info=data.meta_info),
        lambda data: DataProto(meta_info=data.meta_info),
    ],
)
def test_what_is_made_from_a_proto_has_a_meta_info_of_its_own(make):
    data = example(6, step=1)
    made = make(data)
    assert made.meta_info == {"step": 1}
    made.meta_info["step"] = 2
    made.meta_info["new"] = 3
    assert data.meta_info == {"step": 1}


def test_adding_a_column_to_a_selection_leaves_the_original_alone():
    data = example(3)
    selected = data.select()
    selected.batch["new"] = torch.zeros(3)
    selected.non_tensor_batch["new"] = np.zeros(3)
    selected.union(DataProto.from_dict({"more": torch.zeros(3)}))
    assert set(data.batch.keys()) == {"obs", "long"}
    assert set(data.non_tensor_batch) == {"label"}


def test_a_slice_shares_the_memory_of_its_tensors():
    data = example(4)
    data[1:3].batch["obs"][0] = 9
    assert data.batch["obs"].tolist() == [0, 9, 2, 3]


def test_unequal_chunks_are_refused_with_both_numbers():
    with pytest.raises(DataProtoError, match="6 rows do not divide into 5"):
        example(6).chunk(5)


@pytest.mark.parametrize(
    ("rows", "chunks", "sizes"),
    [(3, 2, [2, 1]), (9, 2, [5, 4]), (9, 4, [3, 2, 2, 2]), (3, 4, [1, 1, 1, 0]), (0, 2, [0, 0])],
)
@pytest.mark.parametrize("with_tensors", [True, False])
def test_with_auto_padding_any_number_of_rows_is_chunked(rows, chunks, sizes, with_tensors):
    data = DataProto.from_dict(
        {"obs": torch.arange(rows)} if with_tensors else None, {"label": list(range(rows))}, auto_padding=True
    )
    assert data.is_padding_enabled()
    assert [len(chunk) for chunk in data.chunk(chunks)] == sizes


def test_auto_padding_can_be_switched_on_for_all(monkeypatch):
    data = example(3)
    assert not data.is_padding_enabled()
    monkeypatch.setattr(DataProtoConfig, "auto_padding", True)
    assert [len(chunk) for chunk in data.chunk(2)] == [2, 1]


@pytest.mark.parametrize("number", [0, -1])
def test_no_chunks_and_no_split_size_are_refused(number):
    with pytest.raises(DataProtoError, match=f"at least 1, not {number}"):
        example().chunk(number)
    with pytest.raises(DataProtoError, match=f"at least 1, not {number}"):
        example().split(number)


def test_the_last_split_has_what_is_left():
    assert [labels(piece) for piece in example(5).split(2)] == [["row0", "row1"], ["row2", "row3"], ["row4"]]


def test_repeating_is_side_by_side_or_the_whole_over_again():
    data = example(2, step=1)
    assert labels(data.repeat(2)) == ["row0", "row0", "row1", "row1"]
    assert data.repeat(2).batch["obs"].tolist() == [0, 0, 1, 1]
    assert labels(data.repeat(2, interleave=False)) == ["row0", "row1", "row0", "row1"]
    assert data.repeat(2, interleave=False).batch["obs"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("times", [[2, 0, 1], (2, 0, 1), np.array([2, 0, 1]), torch.tensor([2, 0, 1])])
def test_each_row_is_repeated_its_own_number_of_times(times):
    repeated = example(3).sample_level_repeat(times)
    assert repeated.batch["obs"].tolist() == [0, 0, 2]
    assert labels(repeated) == ["row0", "row0", "row2"]


def test_repeat_times_of_another_length_than_the_rows_are_refused():
    with pytest.raises(DataProtoError, match=r"\[2\].*3 rows"):
        example(3).sample_level_repeat([1, 2])


def test_reordering_happens_in_place():
    data = example(3, step=1)
    assert data.reorder(torch.tensor([2, 0, 1])) is None
    assert data.batch["obs"].tolist() == [2, 0, 1]
    assert labels(data) == ["row2", "row0", "row1"]
    assert data.meta_info == {"step": 1}


def test_padding_appends_the_first_or_the_last_row_in_place():
    data = example(2)
    data.padding(2, "first")
    assert labels(data) == ["row0", "row1", "row0", "row0"]
    data = example(2)
    data.padding(1)
    assert data.batch["obs"].tolist() == [0, 1, 1]


@pytest.mark.parametrize("arguments", [(1, "frst"), (1, ""), ("frst",), (-1,)])
def test_a_padding_that_means_nothing_is_refused_with_its_value(arguments):
    data = example(2)
    with pytest.raises(DataProtoError, match=repr(arguments[-1])):
        data.padding(*arguments)
    assert len(data) == 2


def test_padding_no_rows_is_refused():
    with pytest.raises(DataProtoError, match="no row to repeat"):
        example(0).padding(1)


def test_padding_to_a_divisor_repeats_from_the_front_as_often_as_needed():
    padded, pad_size = pad_dataproto_to_divisor(example(3, metrics={"loss": 1.0}), 7)
    assert pad_size == 4
    assert labels(padded) == ["row0", "row1", "row2", "row0", "row1", "row2", "row0"]
    assert padded.meta_info == {"metrics": {"loss": 1.0}}


def test_taking_off_more_padding_than_there_are_rows_is_refused():
    with pytest.raises(DataProtoError, match=r"4 rows of padding off 3 rows"):
        unpad_dataproto(example(3), 4)


def test_folding_groups_neighbouring_rows_and_leaves_the_original_alone():
    data = example(4)
    folded = fold_batch_dim(data, 2)
    assert folded.batch["obs"].tolist() == [[0, 1], [2, 3]]
    assert folded.non_tensor_batch["label"].tolist() == [["row0", "row1"], ["row2", "row3"]]
    assert labels(data) == ["row0", "row1", "row2", "row3"]
    with pytest.raises(DataProtoError, match="4 rows do not fold into 3"):
        fold_batch_dim(data, 3)


def test_unfolding_names_the_column_that_was_never_folded():
    folded = fold_batch_dim(example(4), 2)
    folded.batch["flat"] = torch.zeros(2)
    with pytest.raises(DataProtoError, match="'flat'"):
        unfold_batch_dim(folded)


def test_column_chunks_become_rows_and_the_other_columns_repeat():
    data = DataProto.from_dict(
        {"wide": torch.arange(8).reshape(2, 4), "obs": torch.arange(2)}, {"pair": [["a", "b"], ["c", "d"]], "n": [0, 1]}
    )
    unfolded = data.unfold_column_chunks(2, split_keys=["wide", "pair"])
    assert unfolded.batch["wide"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert unfolded.batch["obs"].tolist() == [0, 0, 1, 1]
    assert unfolded.non_tensor_batch["pair"].tolist() == [["a"], ["b"], ["c"], ["d"]]
    assert unfolded.non_tensor_batch["n"].tolist() == [0, 0, 1, 1]
    assert_same(data.unfold_column_chunks(2), data.repeat(2))


def test_a_column_that_does_not_split_is_named_with_its_shape():
    with pytest.raises(DataProtoError, match=r"'long' of shape \[6, 4\] does not split into 3"):
        example(6).unfold_column_chunks(3, ["long"])
    with pytest.raises(DataProtoError, match=r"'lnog'. Did you mean"):
        example(6).unfold_column_chunks(2, ["lnog"])


def test_mini_batches_visit_every_row_once_per_epoch_in_an_order_set_by_the_seed():
    data = example(6, step=1)

    def order(seed):
        batches = list(data.make_iterator(2, epochs=2, seed=seed, dataloader_kwargs={"shuffle": True}))
        assert [len(batch) for batch in batches] == [2] * 6
        assert all(batch.meta_info == {"step": 1} for batch in batches)
        return [label for batch in batches for label in labels(batch)]

    assert sorted(order(1)[:6]) == sorted(order(1)[6:]) == labels(data)
    assert order(1) == order(1)
    assert order(1) != order(2)


def test_mini_batches_without_tensors_are_possible():
    data = DataProto.from_dict(non_tensors={"label": ["a", "b"]})
    assert [labels(batch) for batch in data.make_iterator(1, epochs=1)] == [["a"], ["b"]]


def test_rows_that_do_not_divide_into_mini_batches_are_refused():
    with pytest.raises(DataProtoError, match="6 rows do not divide into mini-batches of 4"):
        example(6).make_iterator(4, epochs=1)


def test_collating_rows_makes_columns_again():
    data = example(3)
    assert_same(collate_fn([data[2], data[0]]), data[[2, 0]])
    with pytest.raises(DataProtoError, match="nothing to collate"):
        collate_fn([])
