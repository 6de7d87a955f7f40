"""Groups on a Ray cluster of two nodes: called as in one process, and clear about what went wrong where."""

import re
import runpy
from pathlib import Path

import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from toy_workers import Ranked, Toy

from openmanus_rl.config.schema import ClusterConfig, PoolConfig
from openmanus_rl.distributed import ray_processes
from openmanus_rl.distributed.cluster import connected
from openmanus_rl.distributed.errors import RankLost, WorkerError
from openmanus_rl.distributed.ray_processes import RayProcesses
from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.balance import balanced_shares
from openmanus_rl.workers.registry import find_worker

ONE_EACH = PoolConfig(nodes=2, cpus_per_rank=1)


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "include_dashboard": False})
    made.add_node(num_cpus=8)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield ClusterConfig(start_timeout=240)
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def pair(cluster):
    """Two ranks on two nodes, with two roles in each; for tests that leave them whole."""
    processes = RayProcesses("pair", ONE_EACH, cluster)
    yield processes
    processes.close()


@pytest.fixture(scope="module")
def ranked(pair):
    return WorkerGroup(Ranked, pair, "ranked", base=10)


@pytest.fixture
def pool(cluster):
    """Make a pool that the test may break."""
    made = []

    def make(config):
        made.append(RayProcesses("breakable", config, cluster))
        return made[-1]

    yield make
    for processes in made:
        processes.close()


def rows_of_length(lengths):
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return DataProto.from_dict({"attention_mask": mask, "row": torch.arange(len(lengths))})


def test_the_three_ways_of_calling_answer_as_in_one_process(pair):
    group = WorkerGroup(Toy, pair, "toy", start=10)
    answer = group.double(DataProto.from_dict({"number": torch.arange(6)}), times=2)
    assert answer.batch["doubled"].tolist() == [0, 4, 8, 12, 16, 20]
    assert answer.meta_info["metrics"] == {"rows": [3, 3]}
    assert group.add(5) == 15
    assert group.report("total") == "total 15"
    assert group.local is None


def test_a_split_is_balanced_over_the_ranks_and_in_order_again(ranked):
    lengths = [3, 90, 1, 80, 7, 2, 60, 5]
    answer = ranked.process(rows_of_length(lengths)).batch
    assert answer["row"].tolist() == list(range(8))
    shares = balanced_shares([float(length) for length in lengths], 2)
    assert [(answer["rank"] == rank).nonzero().flatten().tolist() for rank in (0, 1)] == shares


def test_ranks_are_on_nodes_of_their_own_and_the_drivers_is_first(pair):
    nodes = [rank.place.node for rank in pair.ranks]
    assert len(set(nodes)) == 2
    assert nodes[0] == ray.get_runtime_context().get_node_id()


def test_roles_of_a_pool_live_in_the_same_processes(pair, ranked):
    other = WorkerGroup(Ranked, pair, "other", base=20)
    data = rows_of_length([1, 1])
    assert other.process(data).batch["pid"].tolist() == ranked.process(data).batch["pid"].tolist()
    assert other.process(data).batch["pid"].tolist() == [rank.place.pid for rank in pair.ranks]
    assert (ranked.sum_of_ranks(), other.sum_of_ranks()) == ((23.0, 2), (43.0, 2))


def test_a_process_has_the_threads_that_its_pool_gives_it(ranked):
    assert ranked.threads() == (1, "1")


def test_tensors_that_travel_can_be_written_to_and_are_copies(ranked):
    weights = {
        "half": torch.ones(3, dtype=torch.bfloat16),
        "column": torch.arange(6.0).reshape(2, 3)[:, 1],
        "none": torch.empty(0, 4),
        "sparse": torch.eye(3).to_sparse(),
    }
    changed = ranked.overwrite(weights)
    assert changed["half"].dtype == torch.bfloat16
    assert changed["half"].tolist() == [2, 2, 2]
    assert changed["column"].tolist() == [2, 5]
    assert changed["none"].shape == (0, 4)
    assert changed["sparse"].to_dense().equal(torch.eye(3))
    assert weights["half"].tolist() == [1, 1, 1]
    changed["half"].zero_()


def test_an_error_says_which_rank_where_and_how(pair, ranked):
    with pytest.raises(WorkerError, match=r"ranked\.fail_on failed on rank 1 .*rank 1 was asked to fail") as caught:
        ranked.fail_on(1)
    assert (caught.value.role, caught.value.method, caught.value.rank) == ("ranked", "fail_on", 1)
    assert caught.value.node == str(pair.ranks[1].place)
    assert 'raise ValueError(f"rank {rank} was asked to fail")' in caught.value.remote_traceback
    assert ranked.fail_on(7) == "fine"


def test_a_users_mistake_is_told_as_one(ranked):
    with pytest.raises(UserError, match="this model has no head") as caught:
        ranked.refuse()
    assert caught.value.hint == "Give one that has."


def test_an_answer_that_cannot_travel_is_an_error_of_that_method(ranked):
    with pytest.raises(WorkerError, match=r"ranked\.answer_unpicklable failed on rank [01] (.|\n)*cannot pickle"):
        ranked.answer_unpicklable()


def test_a_worker_that_cannot_be_made_says_why(pair):
    with pytest.raises(WorkerError, match=r"wrong\.__init__ failed on rank [01] .*unexpected keyword argument 'size'"):
        WorkerGroup(Toy, pair, "wrong", size=3)


def test_a_class_from_a_users_file_works_where_the_file_is_not_importable(pair, tmp_path):
    (tmp_path / "own_worker.py").write_text(
        "from openmanus_rl.workers.dispatch import Dispatch, dispatch\n"
        "FACTOR = 3\n"
        "def helper(number): return FACTOR * number\n"
        "class Mine:\n"
        "    @dispatch(Dispatch.SAME)\n"
        "    def triple(self, number): return helper(number)\n"
    )
    group = WorkerGroup(find_worker(f"{tmp_path}/own_worker.py:Mine"), pair, "mine")
    (tmp_path / "own_worker.py").unlink()
    assert group.triple(14) == 42


def test_a_connection_that_is_there_is_used_and_left(cluster):
    before = ray.get_runtime_context().get_node_id()
    with connected(cluster):
        assert ray.get_runtime_context().get_node_id() == before
    assert ray.is_initialized()


def test_the_bench_of_the_object_store_runs(cluster, capsys, monkeypatch):
    bench = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "object_store.py"))
    monkeypatch.setitem(bench["main"].__globals__, "GIGABYTES", 0.01)
    monkeypatch.setitem(bench["main"].__globals__, "ALTERNATIONS", 1)
    bench["main"]()
    assert re.match(r"0\.01 GB: copy .* there and back .*x\n", capsys.readouterr().out)


def test_a_pool_that_has_no_room_is_refused_with_what_there_is(cluster):
    small = cluster.model_copy(update={"start_timeout": 1.0})
    with pytest.raises(UserError, match=r"no room for the pool big: 1 nodes, each with 20 CPUs .* nodes have 8 CPUs"):
        RayProcesses("big", PoolConfig(cpus_per_rank=20), small)
    with pytest.raises(UserError, match=r"no room for the pool wide: 3 nodes"):
        RayProcesses("wide", PoolConfig(nodes=3), small)


def test_a_rank_that_fails_while_others_wait_for_it_is_the_one_reported(pool, monkeypatch):
    monkeypatch.setattr(ray_processes, "GRACE_SECONDS", 1.0)
    group = WorkerGroup(Ranked, pool(ONE_EACH), "ranked")
    with pytest.raises(WorkerError, match="rank 1 was asked to fail"):
        group.exchange_but_fail_on(1)
    with pytest.raises(RankLost, match="rank 0 of the pool breakable"):
        group.threads()


def test_a_rank_that_dies_is_lost_and_nobody_waits_for_it(pool):
    group = WorkerGroup(Ranked, pool(ONE_EACH), "ranked")
    with pytest.raises(RankLost, match="rank 1 of the pool breakable") as caught:
        group.exchange_but_die_on(1)
    assert caught.value.rank == 1
    with pytest.raises(RankLost):
        group.threads()


def test_a_process_that_stands_still_is_lost(pool, monkeypatch):
    group = WorkerGroup(Ranked, pool(PoolConfig()), "ranked")
    monkeypatch.setattr(ray_processes, "PULSE_SECONDS", 2.0)
    with pytest.raises(RankLost, match="gave no sign of life"):
        group.stand_still()
