"""A group is called as one worker: how arguments reach the ranks, and what comes back."""

import numpy as np
import pytest
import torch
from toy_workers import Toy

from openmanus_rl.distributed.processes import ThisProcess
from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.protocol import DataProto, DataProtoError
from openmanus_rl.workers.balance import balanced_shares
from openmanus_rl.workers.dispatch import Dispatch


class SpiedProcess(ThisProcess):
    """Lets a test look at its workers."""

    def workers(self, role):
        return self._workers[role]


def toys(ranks, start=0):
    processes = SpiedProcess(ranks)
    return WorkerGroup(Toy, processes, "toy", start=start), processes.workers("toy")


def numbers(count, lengths=None):
    names = np.array([f"n{index}" for index in range(count)], dtype=object)
    tensors = {"number": torch.arange(count)}
    if lengths is not None:
        tensors["attention_mask"] = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return DataProto.from_dict(tensors, {"name": names})


@pytest.mark.parametrize("ranks", [1, 2])
def test_split_divides_the_rows_and_joins_the_answers_in_order(ranks):
    group, workers = toys(ranks)
    answer = group.double(numbers(6))
    assert answer.batch["doubled"].tolist() == [0, 2, 4, 6, 8, 10]
    assert [worker.calls for worker in workers] == [[f"double {6 // ranks}"]] * ranks
    assert answer.meta_info["metrics"] == {"rows": [6 // ranks] * ranks}


@pytest.mark.parametrize("ranks", [1, 2])
def test_split_gives_every_rank_the_other_arguments_by_place_or_name(ranks):
    group, _ = toys(ranks)
    assert group.double(numbers(4), 2).batch["doubled"].tolist() == [0, 4, 8, 12]
    assert group.double(numbers(4), times=3).batch["doubled"].tolist() == [0, 8, 16, 24]


def test_rows_are_divided_by_their_tokens_and_come_back_in_order():
    lengths = [1, 90, 2, 3, 4, 80, 5, 1, 2]
    group, workers = toys(2)
    answer = group.double(numbers(9, lengths))
    assert answer.batch["doubled"].tolist() == list(range(0, 18, 2))
    shares = balanced_shares([float(length) for length in lengths], 2)
    assert [worker.calls for worker in workers] == [[f"double {len(share)}"] for share in shares]
    assert {1, 5} not in [set(share) & {1, 5} for share in shares]


def test_more_ranks_than_rows_leaves_some_without_rows():
    group, workers = toys(3)
    assert group.double(numbers(2, [4, 9])).batch["doubled"].tolist() == [0, 2]
    assert sorted(worker.calls[0] for worker in workers) == ["double 0", "double 1", "double 1"]


def test_on_one_rank_nothing_is_copied():
    group, _ = toys(1)
    data = numbers(3, [1, 2, 3])
    seen = []
    group.local.double = lambda given: seen.append(given) or given
    answer = group.double(data)
    assert seen[0] is data
    assert answer.batch["number"].data_ptr() == data.batch["number"].data_ptr()


def test_an_answer_without_rows_keeps_what_each_rank_measured():
    group, _ = toys(2)
    assert group.nothing_but_metrics(numbers(3, [9, 1, 1])).meta_info["metrics"] == {"rows": [1, 2]}


def test_an_answer_with_rows_missing_is_noticed():
    group, _ = toys(2)
    with pytest.raises(DataProtoError, match=r"toy.forget_a_row answered with 2 rows for 4"):
        group.forget_a_row(numbers(4))


def test_rows_that_do_not_divide_are_refused_unless_padding_is_enabled():
    group, _ = toys(2)
    with pytest.raises(DataProtoError, match="3 rows do not divide into 2"):
        group.double(numbers(3))
    uneven = DataProto.from_dict({"number": torch.arange(3)}, auto_padding=True)
    assert group.double(uneven).batch["doubled"].tolist() == [0, 2, 4]


@pytest.mark.parametrize("ranks", [1, 2])
def test_same_calls_every_rank_with_the_same_and_answers_with_rank_0s(ranks):
    group, workers = toys(ranks, start=10)
    assert group.add(5) == 15
    assert group.add(amount=1) == 16
    assert [worker.calls for worker in workers] == [["add 5", "add 1"]] * ranks


@pytest.mark.parametrize("ranks", [1, 2])
def test_rank0_calls_only_the_first(ranks):
    group, workers = toys(ranks, start=3)
    workers[-1].total += ranks - 1
    assert group.report(prefix="total") == "total 3"
    assert [len(worker.calls) for worker in workers] == [1] + [0] * (ranks - 1)


def test_ranks_are_workers_of_their_own_and_the_first_is_local():
    group, workers = toys(2)
    assert group.local is workers[0]
    assert workers[0] is not workers[1]


def test_roles_share_processes_and_keep_apart():
    processes = ThisProcess()
    first = WorkerGroup(Toy, processes, "first", start=1)
    second = WorkerGroup(Toy, processes, "second", start=2)
    first.add(10)
    assert (first.local.total, second.local.total) == (11, 2)


@pytest.mark.parametrize("name", ["private", "total", "missing"])
def test_what_is_not_marked_is_no_method_of_the_group(name):
    with pytest.raises(AttributeError, match=f"Toy.{name} is not marked with @dispatch"):
        getattr(toys(1)[0], name)


def test_every_public_method_of_the_real_workers_is_marked():
    from openmanus_rl.workers.actor import ActorWorker, ReferenceWorker
    from openmanus_rl.workers.critic import CriticWorker

    for worker in (ActorWorker, CriticWorker, ReferenceWorker):
        methods = [name for name, value in vars(worker).items() if callable(value) and not name.startswith("_")]
        assert methods
        for name in methods:
            assert isinstance(getattr(worker, name).dispatch_mode, Dispatch), f"{worker.__name__}.{name}"
