"""A node goes in mid-run and comes back: the run goes on by itself. Minutes, so run by ./test.sh --all."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tiny_runs import json_lines, steps_of, wait_until

from openmanus_rl.trainer.run import train

STEPS = 12
TWO_NODES = [
    "trainer.executor=ray",
    "cluster.pools.main.nodes=2",
    f"trainer.steps={STEPS}",
    "trainer.save_every=1",
    "trainer.validate_every=100",
]


@pytest.fixture
def two_nodes():
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    cluster.second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
def test_a_lost_node_costs_a_restart_once_it_is_back_and_no_step_or_episode(place, two_nodes):
    config = place.config(*TWO_NODES)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(train, config)
        wait_until(lambda: any(place.runs.glob("*")), 120, "a run directory")
        (run,) = place.runs.glob("*")
        wait_until(lambda: max(steps_of(run), default=0) >= 3, 120, "the third step")
        two_nodes.remove_node(two_nodes.second, allow_graceful=False)
        at_loss = max(steps_of(run))
        time.sleep(15)
        two_nodes.second = two_nodes.add_node(num_cpus=1)
        back = time.monotonic()
        wait_until(lambda: max(steps_of(run)) > at_loss + 1 or running.done(), 120, "a step after the node's return")
        assert time.monotonic() - back < 60
        running.result(timeout=240)
    assert steps_of(run) == list(range(STEPS + 1))
    assert [event["event"] for event in json_lines(run / "events.jsonl")].count("restarted") >= 1
    assert all(line["episode/count"] == 8 for line in json_lines(run / "metrics.jsonl")[1:])
