"""Pickles that cost a memory copy, and files that are whole or not there."""

import multiprocessing
import os
import pickle
import signal
import time
import tracemalloc

import numpy as np
import pytest
import torch
from same_proto import assert_same, example

from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto


def best_seconds(action, tries: int = 5) -> float:
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak_bytes(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_pickling_and_back_takes_about_the_time_of_a_memory_copy_each_way():
    """On a machine that does nothing else; what it costs in memory is below, and holds on any."""
    # One tensor above every allocator's threshold, so that all of them pay for fresh pages alike.
    data = DataProto.from_dict({"a": torch.zeros(25, 1_000_000)})
    copying = best_seconds(lambda: data.batch.clone())
    pickling = best_seconds(lambda: pickle.loads(pickle.dumps(data, protocol=5)))
    assert pickling < 4 * copying


def test_pickling_and_back_makes_one_copy_each_way():
    data = DataProto.from_dict({"a": torch.zeros(100, 50_000, dtype=torch.bfloat16)})
    size = data.batch["a"].nbytes
    stream = pickle.dumps(data, protocol=5)
    assert peak_bytes(lambda: pickle.dumps(data, protocol=5)) < 1.6 * size  # pickle's buffer grows by halves
    assert peak_bytes(lambda: pickle.loads(stream)) < 1.1 * size


def test_a_pickle_holds_every_byte_of_a_tensor_once():
    data = DataProto.from_dict({"a": torch.randint(1 << 60, (1000, 100)), "b": torch.zeros(1000, 100)})
    stream = pickle.dumps(data, protocol=5)
    assert len(stream) < data.batch["a"].nbytes + data.batch["b"].nbytes + 2000
    assert data.batch["a"].numpy().tobytes() in stream, "as they lie in memory, not as a file inside the pickle"


def test_tensors_from_writable_buffers_are_those_buffers():
    buffers = []
    stream = pickle.dumps(DataProto.from_dict({"a": torch.zeros(100)}), protocol=5, buffer_callback=buffers.append)
    received = [bytearray(buffer.raw()) for buffer in buffers]
    loaded = pickle.loads(stream, buffers=received)
    received[0][:4] = b"\x00\x00\x80\x3f"  # 1.0
    assert loaded.batch["a"][0] == 1, "nothing was copied"


def test_a_pickled_slice_carries_only_its_rows():
    data = DataProto.from_dict({"a": torch.zeros(1000, 1000)})
    assert len(pickle.dumps(data[:1])) < 10_000


def test_out_of_band_pickles_hold_no_tensor_bytes():
    buffers = []
    stream = pickle.dumps(
        DataProto.from_dict({"a": torch.zeros(1000, 100)}), protocol=5, buffer_callback=buffers.append
    )
    assert len(stream) < 2000
    assert sum(buffer.raw().nbytes for buffer in buffers) == 400_000


@pytest.mark.filterwarnings("error")
def test_tensors_from_read_only_buffers_can_be_written_without_changing_the_buffers():
    buffers = []
    stream = pickle.dumps(example(3), protocol=5, buffer_callback=buffers.append)
    shared = [bytes(buffer.raw()) for buffer in buffers]
    pickle.loads(stream, buffers=shared).batch["obs"].add_(1)
    assert_same(pickle.loads(stream, buffers=shared), example(3))


def test_what_numpy_does_not_know_is_pickled_too():
    data = DataProto.from_dict(
        {
            "bfloat16": torch.randn(3, 2).bfloat16(),
            "float8": torch.randn(3, 2).to(torch.float8_e4m3fn),
            "complex": torch.randn(3, dtype=torch.complex64).conj(),
            "expanded": torch.ones(1, 2).expand(3, 2),
            "with_gradient": torch.ones(3, requires_grad=True),
        }
    )
    loaded = pickle.loads(pickle.dumps(data))
    assert_same(loaded, data.select(deepcopy=True))
    assert not loaded.batch["with_gradient"].requires_grad


def test_nested_tensors_are_pickled_too():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    loaded = pickle.loads(pickle.dumps(DataProto.from_dict({"nested": nested, "plain": torch.zeros(2)})))
    assert [row.tolist() for row in loaded.batch["nested"].unbind()] == [[1, 1], [1, 1, 1]]


def test_a_file_cut_anywhere_is_refused_with_its_name(tmp_path):
    path = tmp_path / "data.pt"
    example(3).save_to_disk(path)
    whole = path.read_bytes()
    for length in (0, 5, 16, 17, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"data\.pt is (truncated|not a saved)"):
            DataProto.load_from_disk(path)
    path.write_bytes(whole)
    assert_same(DataProto.load_from_disk(str(path)), example(3))


def test_another_kind_of_file_is_refused_before_it_is_unpickled(tmp_path):
    path = tmp_path / "other.pt"
    path.write_bytes(pickle.dumps({"not": "a proto, but long enough to have a header"}))
    with pytest.raises(UserError, match=r"other\.pt is not a saved DataProto"):
        DataProto.load_from_disk(path)


def test_a_save_that_fails_leaves_the_previous_file_and_no_litter(tmp_path):
    path = tmp_path / "data.pt"
    example(3).save_to_disk(path)
    unpicklable = DataProto(non_tensor_batch={"function": np.array([lambda: 1], dtype=object)})
    with pytest.raises((pickle.PicklingError, AttributeError)):
        unpicklable.save_to_disk(path)
    assert os.listdir(tmp_path) == ["data.pt"]
    assert_same(DataProto.load_from_disk(path), example(3))


class Killer:
    """Dies in the middle of being pickled, and takes its process along."""

    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_save_that_is_killed_leaves_the_previous_file_loadable(tmp_path):
    path = tmp_path / "data.pt"
    example(3).save_to_disk(path)
    deadly = DataProto.from_dict({"a": torch.zeros(1, 100_000)}, {"killer": [Killer()]})
    saving = multiprocessing.get_context("fork").Process(target=deadly.save_to_disk, args=(path,))
    saving.start()
    saving.join(timeout=240)
    assert saving.exitcode == -signal.SIGKILL
    assert_same(DataProto.load_from_disk(path), example(3))


def test_saving_again_replaces_the_file(tmp_path):
    example(3).save_to_disk(tmp_path / "data.pt")
    example(5).save_to_disk(tmp_path / "data.pt")
    assert_same(DataProto.load_from_disk(tmp_path / "data.pt"), example(5))
