"""A group is called as one worker: how arguments reach the ranks, and what comes back."""

import numpy as np
import pytest
import torch

from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.protocol import DataProto, DataProtoError
from openmanus_rl.workers.dispatch import Dispatch, dispatch


class Toy:
    """Remembers its calls."""

    def __init__(self, start: int) -> None:
        self.total = start
        self.calls: list[str] = []

    @dispatch(Dispatch.SPLIT)
    def double(self, data: DataProto, times: int = 1) -> DataProto:
        """Twice each number, `times` times."""
        self.calls.append(f"double {len(data)}")
        answer = {"doubled": data.batch["number"] * 2**times}
        return DataProto.from_dict(answer, meta_info={"metrics": {"rows": len(data)}})

    @dispatch(Dispatch.SAME)
    def add(self, amount: int) -> int:
        self.calls.append(f"add {amount}")
        self.total += amount
        return self.total

    @dispatch(Dispatch.RANK0)
    def report(self, prefix: str) -> str:
        self.calls.append("report")
        return f"{prefix} {self.total}"

    def private(self) -> None:
        """Not marked."""


def numbers(count):
    names = np.array([f"n{index}" for index in range(count)], dtype=object)
    return DataProto.from_dict({"number": torch.arange(count)}, {"name": names})


@pytest.mark.parametrize("ranks", [1, 2])
def test_split_divides_the_rows_and_joins_the_answers_in_order(ranks):
    group = WorkerGroup(Toy, ranks, start=0)
    answer = group.double(numbers(6))
    assert answer.batch["doubled"].tolist() == [0, 2, 4, 6, 8, 10]
    assert [worker.calls for worker in group.workers] == [[f"double {6 // ranks}"]] * ranks
    assert answer.meta_info["metrics"] == {"rows": [6 // ranks] * ranks}


@pytest.mark.parametrize("ranks", [1, 2])
def test_split_gives_every_rank_the_other_arguments_by_place_or_name(ranks):
    group = WorkerGroup(Toy, ranks, start=0)
    assert group.double(numbers(4), 2).batch["doubled"].tolist() == [0, 4, 8, 12]
    assert group.double(numbers(4), times=3).batch["doubled"].tolist() == [0, 8, 16, 24]


def test_rows_that_do_not_divide_are_refused_unless_padding_is_enabled():
    group = WorkerGroup(Toy, 2, start=0)
    with pytest.raises(DataProtoError, match="3 rows do not divide into 2"):
        group.double(numbers(3))
    uneven = DataProto.from_dict({"number": torch.arange(3)}, auto_padding=True)
    assert group.double(uneven).batch["doubled"].tolist() == [0, 2, 4]


@pytest.mark.parametrize("ranks", [1, 2])
def test_same_calls_every_rank_with_the_same_and_answers_with_rank_0s(ranks):
    group = WorkerGroup(Toy, ranks, start=10)
    assert group.add(5) == 15
    assert group.add(amount=1) == 16
    assert [worker.calls for worker in group.workers] == [["add 5", "add 1"]] * ranks


@pytest.mark.parametrize("ranks", [1, 2])
def test_rank0_calls_only_the_first(ranks):
    group = WorkerGroup(Toy, ranks, start=3)
    group.workers[-1].total += ranks - 1
    assert group.report(prefix="total") == "total 3"
    assert [len(worker.calls) for worker in group.workers] == [1] + [0] * (ranks - 1)


def test_ranks_are_workers_of_their_own_and_the_first_is_local():
    group = WorkerGroup(Toy, 2, executor="inline", start=1)
    assert group.local is group.workers[0]
    assert group.workers[0] is not group.workers[1]


@pytest.mark.parametrize("name", ["private", "total", "missing"])
def test_what_is_not_marked_is_no_method_of_the_group(name):
    with pytest.raises(AttributeError, match=f"Toy.{name} is not marked with @dispatch"):
        getattr(WorkerGroup(Toy, 1, start=0), name)


def test_an_unknown_executor_is_refused():
    with pytest.raises(ValueError, match="no executor 'rya'"):
        WorkerGroup(Toy, 1, executor="rya", start=0)


def test_every_public_method_of_the_real_workers_is_marked():
    from openmanus_rl.workers.actor import ActorWorker, ReferenceWorker
    from openmanus_rl.workers.critic import CriticWorker

    for worker in (ActorWorker, CriticWorker, ReferenceWorker):
        methods = [name for name, value in vars(worker).items() if callable(value) and not name.startswith("_")]
        assert methods
        for name in methods:
            assert isinstance(getattr(worker, name).dispatch_mode, Dispatch), f"{worker.__name__}.{name}"
