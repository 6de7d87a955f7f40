"""Whole runs on Ray: the same bits as in this process, sharded ranks, and a run that survives the death of a rank."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_runs import drawn_tasks, json_lines, steps_of

from openmanus_rl.config.schema import ClusterConfig, PoolConfig
from openmanus_rl.distributed.cluster import connected
from openmanus_rl.distributed.errors import WorkerError
from openmanus_rl.errors import UserError
from openmanus_rl.trainer.run import train

HERE = Path(__file__).parent
ON_RAY = ["trainer.executor=ray", "cluster.pools.main.cpus_per_rank=0.5"]


@pytest.fixture(scope="module")
def ray_here(tmp_path_factory):
    """One Ray for the runs of this file; runs that are called find it and leave it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("OPENMANUS_TEST_TOMBSTONE", str(tmp_path_factory.mktemp("tombs") / "dead"))
    with connected(ClusterConfig(pools={"all": PoolConfig(ranks_per_node=4)})):
        yield
    patch.undo()


def weights(run: Path, step: int, role: str = "actor") -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step_{step:06d}" / role / "model.safetensors")


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def test_one_rank_on_ray_learns_the_same_bits_as_in_this_process(place, ray_here):
    exact = ["trainer.deterministic=true", "trainer.steps=2"]
    here = train(place.config(*exact, "trainer.name=here", preset=place.ppo))
    there = train(place.config(*exact, *ON_RAY, "trainer.name=there", preset=place.ppo))
    for role in ("actor", "critic"):
        assert_same_bits(weights(here, 2, role), weights(there, 2, role))
    started = load_file(here / "initial_model" / "model.safetensors")
    assert any(not torch.equal(value, started[name]) for name, value in weights(here, 2).items())


def test_two_ranks_and_engines_in_a_pool_of_their_own_train_as_one_run(place, ray_here):
    pools = ["cluster.pools.main.ranks_per_node=2", "cluster.pools.sampling.ranks_per_node=2"]
    places = ["cluster.pools.sampling.cpus_per_rank=0.5", "cluster.roles.rollout=sampling"]
    run = train(place.config(*ON_RAY, *pools, *places, preset=place.ppo))
    assert steps_of(run) == [0, 1, 2, 3]
    metrics = json_lines(run / "metrics.jsonl")[-1]
    assert metrics["rollout/canary_gap"] < 1e-4
    assert metrics["episode/count"] == 8


@pytest.mark.slow
def test_a_run_that_plays_ahead_goes_on_when_one_of_its_engines_dies(place, ray_here):
    pools = ["cluster.pools.sampling.ranks_per_node=2", "cluster.pools.sampling.cpus_per_rank=0.5"]
    ahead = ["rollout.ahead=1", "actor.proximal=recompute", "algorithm.correction.kind=token"]
    dying = f"trainer.workers.rollout={HERE / 'dying_workers.py'}:DyingRollout"
    run = train(place.config(*ON_RAY, *pools, "cluster.roles.rollout=sampling", *ahead, dying, "trainer.steps=8"))
    assert steps_of(run) == list(range(9))
    assert Path(os.environ["OPENMANUS_TEST_TOMBSTONE"]).with_name("dead engine").exists()
    lines = json_lines(run / "metrics.jsonl")[1:]
    assert all(line["episode/count"] == 8 and line["rollout/canary_gap"] < 1e-3 for line in lines)
    assert {line["rollout/staleness_max"] for line in lines} == {0, 1}
    assert len(drawn_tasks(run, range(1, 9))) == 32


def test_a_rank_that_dies_costs_a_restart_from_the_last_checkpoint_and_nothing_else(place, ray_here):
    dying = f"trainer.workers.actor={HERE / 'dying_workers.py'}:DyingActor"
    run = train(place.config(*ON_RAY, dying, "trainer.steps=4", "trainer.save_every=2"))
    assert steps_of(run) == [0, 1, 2, 3, 4]
    assert len(drawn_tasks(run, [1, 2, 3, 4])) == 16
    (restarted,) = (event for event in json_lines(run / "events.jsonl") if event["event"] == "restarted")
    assert "rank 0 of the pool main" in restarted["reason"]
    assert json.loads((run / "summary.json").read_text())["steps"] == 4


@pytest.mark.slow
def test_without_restarts_left_the_loss_ends_the_run_with_what_to_do(place, ray_here, tmp_path, monkeypatch):
    Path(os.environ["OPENMANUS_TEST_TOMBSTONE"]).unlink(missing_ok=True)
    dying = f"trainer.workers.actor={HERE / 'dying_workers.py'}:DyingActor"
    with pytest.raises(UserError, match=r"trainer\.max_restarts"):
        train(place.config(*ON_RAY, dying, "trainer.steps=4", "trainer.save_every=1", "trainer.max_restarts=0"))


def test_a_mistake_in_a_workers_code_is_shown_with_its_rank_and_traceback_and_not_tried_again(place, ray_here):
    failing = f"trainer.workers.actor={HERE / 'dying_workers.py'}:FailingActor"
    with pytest.raises(WorkerError, match="a mistake in the worker's own code") as caught:
        train(place.config(*ON_RAY, failing))
    assert "rank 0" in str(caught.value)
    assert "dying_workers.py" in str(caught.value)
    (run,) = place.runs.iterdir()
    assert not [event for event in json_lines(run / "events.jsonl") if event["event"] == "restarted"]
