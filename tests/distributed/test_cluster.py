"""The connection to Ray: made for the time of a run, and gone with it."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from openmanus_rl.config.schema import ClusterConfig, PoolConfig
from openmanus_rl.distributed.cluster import connected
from openmanus_rl.errors import UserError

INTERRUPTED_RUN = """
import os, signal
from openmanus_rl.config.schema import ClusterConfig, PoolConfig
from openmanus_rl.distributed.cluster import connected
from openmanus_rl.distributed.ray_processes import RayProcesses
from openmanus_rl.distributed.worker_group import WorkerGroup
from toy_workers import Toy

cluster = ClusterConfig(pools={"main": PoolConfig(cpus_per_rank=5)})
heard = []
with connected(cluster):
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    processes = RayProcesses("main", cluster.pools["main"], cluster)
    group = WorkerGroup(Toy, processes, "toy", start=1)
    print("ready", processes.ranks[0].place.pid, flush=True)
    input()
    print("answer", group.add(1), "heard", len(heard), flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_leaves_the_processes_to_the_driver_which_ends_them(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_RUN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=tmp_path,
        start_new_session=True,  # as in a terminal: Ctrl-C goes to all that the command started
    ) as driver:
        try:
            ready = driver.stdout.readline().split()
            if not ready:
                pytest.fail(driver.stderr.read())
            started = psutil.Process(driver.pid).children(recursive=True)
            assert int(ready[1]) in [process.pid for process in started]
            os.killpg(driver.pid, signal.SIGINT)
            out, err = driver.communicate("go on\n", timeout=240)
        finally:
            if driver.poll() is None:
                driver.kill()
    assert out == "answer 2 heard 1\n"
    assert err == ""
    _, alive = psutil.wait_procs(started, timeout=240)
    assert alive == []


def test_several_nodes_need_a_cluster():
    cluster = ClusterConfig(pools={"main": PoolConfig(nodes=2)})
    with (
        pytest.raises(UserError, match=r"cluster\.pools\.main\.nodes=2, but cluster\.address=local"),
        connected(cluster),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "told"),
    [("127.0.0.1:1", r"no Ray cluster at cluster\.address=127\.0\.0\.1:1"), ("head", "is not an address")],
)
def test_an_address_where_no_cluster_is_says_so_at_once(address, told):
    with pytest.raises(UserError, match=told), connected(ClusterConfig(address=address)):
        pass
