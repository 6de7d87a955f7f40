"""Making protos from columns, choosing columns, renaming them."""

import copy

import numpy as np
import pytest
import torch
from same_proto import assert_same, example, labels
from tensordict import TensorDict

from openmanus_rl.protocol import DataProto, DataProtoError, list_of_dict_to_dict_of_list


class OwnProto(DataProto):
    """A user's subclass."""


def test_the_number_of_rows_is_that_of_tensors_or_of_arrays():
    column = np.array(["a", "b", "c"], dtype=object)
    assert len(example(3)) == 3
    assert len(DataProto(non_tensor_batch={"label": column})) == 3
    assert len(DataProto(non_tensor_batch={})) == 0
    assert len(DataProto(batch=None, non_tensor_batch=None, meta_info=None)) == 0


def test_tensors_of_different_length_are_refused_with_keys_and_shapes():
    with pytest.raises(DataProtoError, match=r"'b' has 3 rows \(shape \[3, 5\]\), but 'a' has 2 \(shape \[2\]\)"):
        DataProto.from_dict({"a": torch.zeros(2), "b": torch.zeros(3, 5)})


def test_an_array_of_another_length_than_the_tensors_is_refused_with_key_and_lengths():
    with pytest.raises(DataProtoError, match=r"'label'\] has 3 rows .* but batch has 2"):
        DataProto.from_dict({"a": torch.zeros(2)}, {"label": ["x", "y", "z"]})


def test_arrays_of_different_length_are_refused_also_without_tensors():
    with pytest.raises(DataProtoError, match=r"'b'\] has 3 rows .* but 'a' has 2"):
        DataProto.from_dict(non_tensors={"a": [1, 2], "b": [1, 2, 3]})


def test_a_single_value_is_not_a_column():
    with pytest.raises(DataProtoError, match="'a'"):
        DataProto.from_dict({"a": torch.tensor(1)})
    with pytest.raises(DataProtoError, match="'a'"):
        DataProto.from_dict(non_tensors={"a": "text"})


def test_rows_are_one_dimension():
    with pytest.raises(DataProtoError, match="num_batch_dims"):
        DataProto.from_dict({"a": torch.zeros(2, 3)}, num_batch_dims=2)
    with pytest.raises(DataProtoError, match=r"\(2, 3\)"):
        DataProto(batch=TensorDict({"a": torch.zeros(2, 3)}, batch_size=[2, 3]))


def test_code_that_expects_verls_assertion_errors_still_catches_ours():
    with pytest.raises(AssertionError):
        example(6).chunk(5)


def test_making_a_proto_leaves_the_given_dicts_alone():
    tensors, arrays, info = {"a": torch.zeros(2)}, {"label": ["x", "y"]}, {"step": 1}
    data = DataProto.from_dict(tensors, arrays, info, auto_padding=True)
    data.meta_info["new"] = 1
    assert arrays == {"label": ["x", "y"]}
    assert info == {"step": 1}


def test_lists_of_arrays_that_numpy_cannot_nest_stay_one_object_per_row():
    data = DataProto.from_dict(non_tensors={"image": [np.zeros((2, 3)), np.zeros((2, 4))]})
    assert [image.shape for image in data.non_tensor_batch["image"]] == [(2, 3), (2, 4)]


def test_a_single_dict_is_sorted_into_tensors_and_arrays():
    data = OwnProto.from_single_dict({"a": torch.zeros(2), "label": np.array(["x", "y"])}, meta_info={"step": 1})
    assert type(data) is OwnProto
    assert list(data.batch.keys()) == ["a"]
    assert list(data.non_tensor_batch) == ["label"]
    with pytest.raises(DataProtoError, match="'n' is a list"):
        DataProto.from_single_dict({"n": [1, 2]})


def test_a_subclass_stays_what_it_is():
    data = OwnProto.from_dict({"a": torch.zeros(4)})
    for made in (data[:2], data.select(), data.chunk(2)[0], data.repeat(2), OwnProto.concat([data]), copy.copy(data)):
        assert type(made) is OwnProto


def test_selected_columns_are_those_named():
    data = example(3, step=1, lr=2)
    selected = data.select(["obs"], [], ["lr"])
    assert list(selected.batch.keys()) == ["obs"]
    assert selected.non_tensor_batch == {}
    assert selected.meta_info == {"lr": 2}
    assert len(data.select(batch_keys=[], non_tensor_batch_keys=[])) == 3


def test_a_mistyped_tensor_key_is_named_with_a_suggestion():
    for choose in (example().select, example().pop):
        with pytest.raises(DataProtoError, match=r"'obss'. Did you mean obs\?"):
            choose(batch_keys=["obss"])


def test_selecting_without_tensors_works():
    data = DataProto.from_dict(non_tensors={"label": ["a", "b"]})
    assert labels(data.select(batch_keys=[], non_tensor_batch_keys=["label"])) == ["a", "b"]


def test_a_deep_copy_shares_nothing():
    data = DataProto.from_dict({"a": torch.zeros(2)}, {"list": [[1], [2, 3]]}, {"nested": {"x": 1}})
    for twin in (data.select(deepcopy=True), copy.deepcopy(data)):
        twin.batch["a"][0] = 7
        twin.non_tensor_batch["list"][0].append(9)
        twin.meta_info["nested"]["x"] = 5
    assert data.batch["a"].tolist() == [0, 0]
    assert data.non_tensor_batch["list"].tolist() == [[1], [2, 3]]
    assert data.meta_info == {"nested": {"x": 1}}


def test_popped_columns_leave_the_proto():
    data = example(3, step=1, lr=2)
    popped = data.pop(["obs"], ["label"], ["step"])
    assert set(popped.batch.keys()) == {"obs"}
    assert labels(popped) == ["row0", "row1", "row2"]
    assert popped.meta_info == {"step": 1}
    assert set(data.batch.keys()) == {"long"}
    assert data.non_tensor_batch == {}
    assert data.meta_info == {"lr": 2}


def test_a_pop_that_fails_takes_nothing():
    data = example(3, step=1)
    with pytest.raises(DataProtoError, match="meta_info has no key 'stepp'"):
        data.pop(["obs"], ["label"], ["stepp"])
    assert_same(data, example(3, step=1))


def test_renaming_renames_tensors_in_place_and_lets_two_change_places():
    data = example(2)
    assert data.rename("obs", "seen") is data
    assert set(data.batch.keys()) == {"seen", "long"}
    data.rename(["seen", "long"], ["long", "seen"])
    assert data.batch["long"].tolist() == [0, 1]


def test_a_rename_that_would_lose_a_tensor_is_refused():
    data = example(2)
    with pytest.raises(DataProtoError, match="two tensors would be called 'long'"):
        data.rename("obs", "long")
    with pytest.raises(DataProtoError, match=r"2 old keys .* 1 new"):
        data.rename(["obs", "long"], ["x"])
    with pytest.raises(DataProtoError, match="'obss'"):
        data.rename("obss", "x")
    assert set(data.batch.keys()) == {"obs", "long"}


def test_tensors_move_in_place():
    data = example(2)
    assert data.to("meta") is data
    assert data.batch["obs"].device.type == "meta"
    assert DataProto().to("cpu").batch is None


def test_a_tensordict_carries_all_and_gives_it_back():
    data = example(3, step=1)
    packed = data.to_tensordict()
    assert packed["obs"].tolist() == [0, 1, 2]
    assert list(packed["label"]) == ["row0", "row1", "row2"]
    assert packed["step"] == 1
    assert_same(DataProto.from_tensordict(packed), data)
    assert_same(DataProto.from_tensordict(example(0).to_tensordict()), example(0))
    same = DataProto.from_dict(non_tensors={"label": ["x", "x"]})
    assert_same(DataProto.from_tensordict(same.to_tensordict()), same)


def test_a_tensordict_refuses_one_name_for_two_things():
    with pytest.raises(DataProtoError, match="'obs' names two things"):
        example(2, obs=1).to_tensordict()


def test_the_sizes_are_printed(capsys):
    DataProto.from_dict({"a": torch.zeros(2**18)}).print_size(prefix="before")
    assert capsys.readouterr().out.startswith("before, Size of tensordict: 0.0009765625 GB")


def test_the_info_has_a_line_for_every_column():
    info = example(2, step=1).get_data_info()
    assert "  long: (2, 4) (torch.int64) cpu" in info
    assert "  label: ndarray(2,) (object)" in info
    assert "  step: int" in info


def test_rows_of_dicts_become_columns_and_a_missing_key_is_named():
    assert list_of_dict_to_dict_of_list([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == {"a": [1, 3], "b": [2, 4]}
    assert list_of_dict_to_dict_of_list([]) == {}
    with pytest.raises(DataProtoError, match="row 0 has the key 'b', row 1 has not"):
        list_of_dict_to_dict_of_list([{"a": 1, "b": 2}, {"a": 3}])
