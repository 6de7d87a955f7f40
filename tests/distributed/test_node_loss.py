"""A node of a cluster goes and comes back: what was on it is lost at once, and made again where there is room."""

import asyncio
import time

import pytest
import ray
from ray.cluster_utils import Cluster
from toy_workers import Ranked

from openmanus_rl.config.load import load_config
from openmanus_rl.config.schema import ClusterConfig, PoolConfig
from openmanus_rl.distributed.errors import RankLost
from openmanus_rl.distributed.ray_engine import RayRollout
from openmanus_rl.distributed.ray_processes import RayProcesses
from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.workers.rollout import RolloutWorker

pytestmark = pytest.mark.slow

CONFIG = load_config(None, ["model.max_context=512", "rollout.concurrency=8"])
CLUSTER = ClusterConfig(start_timeout=240)
ONE_EACH = PoolConfig(nodes=2)


@pytest.fixture
def nodes():
    """A cluster of two nodes, the driver on the first; and the second one."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    second = made.add_node(num_cpus=4)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made, second
    ray.shutdown()
    made.shutdown()


def repaired_until(rollout, reached):
    """Repair as before each step of a run, until it shows."""
    for _ in range(100):
        rollout.repair()
        if reached():
            return
        time.sleep(0.5)
    pytest.fail(f"lost are still {rollout.lost}")


def test_what_learnt_on_a_lost_node_is_made_again_when_it_returns(nodes):
    cluster, second = nodes
    processes = RayProcesses("learning", ONE_EACH, CLUSTER)
    group = WorkerGroup(Ranked, processes, "ranked")
    cluster.remove_node(second, allow_graceful=False)
    with pytest.raises(RankLost, match="rank 1 of the pool learning"):
        group.sum_of_ranks()
    processes.close()

    cluster.add_node(num_cpus=4)
    again = RayProcesses("learning", ONE_EACH, CLUSTER)
    assert WorkerGroup(Ranked, again, "ranked").sum_of_ranks() == (3.0, 2)


def test_engines_go_on_without_a_lost_node_and_use_it_when_it_returns(nodes, model_dir):
    cluster, second = nodes
    notes = []
    processes = RayProcesses("sampling", ONE_EACH, CLUSTER)
    rollout = RayRollout(RolloutWorker, processes, notes.append, model_dir=model_dir, config=CONFIG)
    asyncio.run(rollout.update_weights(None, version=4))
    cluster.remove_node(second, allow_graceful=False)
    repaired_until(rollout, lambda: rollout.lost == [1])  # the process outlives its node for a moment
    rollout.repair()
    assert len(notes) == 1
    assert "the cluster has no room for another: 1 go on" in notes[0]

    cluster.add_node(num_cpus=4)
    repaired_until(rollout, lambda: rollout.lost == [])
    assert "with policy 4" in notes[-1]
    assert [engine.version for engine in rollout.engines] == [4, 4]
