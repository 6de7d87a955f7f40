"""The examples for clusters: presets and start files that fit the schema and each other."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from openmanus_rl.config.load import differing_keys, load_config

EXAMPLES = Path(__file__).parents[2] / "examples"
ASKED_FOR = re.compile(r"openmanus-rl train --config \S*?(\w+\.yaml)((?:\s+\S+=\S+)+)")


def config_of(command: str):
    """The config of the one `openmanus-rl train` in a text."""
    preset, words = ASKED_FOR.search(command.replace("\\\n", " ")).groups()
    return load_config(EXAMPLES / preset, shlex.split(words))


def test_the_preset_for_ray_differs_from_the_other_by_where_it_runs():
    here, on_ray = (load_config(EXAMPLES / name) for name in ("maze_grpo.yaml", "maze_grpo_ray.yaml"))
    assert {key for key, _, _ in differing_keys(here, on_ray)} == {
        "trainer.executor",
        "cluster.pools.main.ranks_per_node",
    }
    assert on_ray.cluster.pools["main"].ranks == 2


def test_the_kubernetes_example_has_room_for_its_pools():
    job = yaml.safe_load((EXAMPLES / "cluster" / "kuberay.yaml").read_text())["spec"]
    cluster = config_of(job["entrypoint"]).cluster
    (workers,) = job["rayClusterSpec"]["workerGroupSpecs"]
    cpus = workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    assert sum(pool.nodes for pool in cluster.pools.values()) <= workers["replicas"]
    assert all(pool.ranks_per_node * pool.cpus_per_rank <= cpus for pool in cluster.pools.values())
    assert set(cluster.roles.values()) <= set(cluster.pools)


def test_the_slurm_example_is_a_script_with_room_for_its_pools():
    path = EXAMPLES / "cluster" / "slurm.sbatch"
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=240)
    text = path.read_text()
    cluster = config_of(text).cluster
    nodes, cpus = (int(re.search(rf"#SBATCH --{name}=(\d+)", text)[1]) for name in ("nodes", "cpus-per-task"))
    assert sum(pool.nodes for pool in cluster.pools.values()) <= nodes
    assert all(pool.ranks_per_node * pool.cpus_per_rank <= cpus for pool in cluster.pools.values())


@pytest.mark.parametrize("name", ["slurm.sbatch", "kuberay.yaml"])
def test_sampling_has_a_pool_of_its_own(name):
    assert config_of((EXAMPLES / "cluster" / name).read_text()).cluster.roles == {"rollout": "sampling"}
