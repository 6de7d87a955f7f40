"""A run of 20 steps that is killed with -9 at any moment and called again ends with the bits of one that was not."""

import random
import re
import signal
import time
from pathlib import Path

import pytest
from cli_process import CliProcess
from killed_runs import POINTS, STEPS, armed, assert_same_end
from tiny_runs import PATIENCE, TinyPlace, server_pids, steps_of, wait_until

QUICK = ["in a metrics line", "between model and optimiser"]
"""The points of the fast suite; the others are slow."""

RANDOM_MOMENTS = 10

COMMON = [
    *[f"trainer.steps={STEPS}", "trainer.save_every=3", "trainer.validate_every=5", "trainer.deterministic=true"],
    *["data.validation_tasks=4", "data.train_tasks=16", "tracking.tensorboard=false", "trainer.name=tried"],
]
KINDS = {
    "grpo": ["rollout.tasks_per_step=2"],
    # With adapters whose dropout draws random numbers, a critic, and a KL price that moves.
    "ppo": [
        *["rollout.tasks_per_step=4", "model.lora.rank=2", "model.lora.dropout=0.1"],
        *["algorithm.kl.where=reward", "algorithm.kl.target=0.05"],
    ],
    # The guard goes back at the first step.
    "guarded": ["actor.lr=0.2", "rollout.group_size=8", "guard.action=rollback", "guard.lr_factor=0.01"],
}


@pytest.fixture(scope="module")
def whole_runs(shared_place, tmp_path_factory):
    """Uninterrupted runs by kind, made when they are first asked for."""
    made: dict[str, Path] = {}
    home = tmp_path_factory.mktemp("whole")

    def whole(kind: str) -> Path:
        if kind not in made:
            made[kind] = finished(call(shared_place, home / kind, kind))
        return made[kind]

    return whole


def call(shared, home, kind, point=None):
    place = TinyPlace(shared, home / "runs")
    words = [*COMMON, *KINDS[kind]]
    arguments = place.command(*words, preset=place.ppo if kind == "ppo" else place.grpo)
    return CliProcess(arguments, home / "console", prepare=armed(point) if point else None)


def finished(process):
    """The run directory of a process that ends as it should."""
    result = process.wait(PATIENCE)
    assert result.code == 0, result.err
    return directory(process)


def directory(process):
    return Path(re.search(r"run directory: (\S+)", process.out)[1])


def killed(process):
    """Wait for the end by -9, also that of its servers."""
    try:
        assert process.wait(PATIENCE).code == -signal.SIGKILL, process.out + process.err
    finally:
        process.end()
    if "run directory:" in process.out:  # else it had not come to start a server
        wait_until(lambda: not server_pids(directory(process)), PATIENCE, "the killed run's server ends")


def kind_of(point):
    """Two kinds take turns; what needs a critic has one, and what is about the guard has a collapse."""
    if point == "in going back":
        return "guarded"
    return "ppo" if "critic" in point or list(POINTS).index(point) % 2 else "grpo"


@pytest.mark.parametrize("point", [pytest.param(p, marks=[] if p in QUICK else [pytest.mark.slow]) for p in POINTS])
def test_a_run_killed_at_a_named_point_ends_with_the_bits_of_an_uninterrupted_one(
    shared_place, tmp_path, whole_runs, point
):
    kind = kind_of(point)
    if point == "while it resumes":
        killed(call(shared_place, tmp_path, kind, "in a weight sync"))
    killed(call(shared_place, tmp_path, kind, point))
    assert_same_end(finished(call(shared_place, tmp_path, kind)), whole_runs(kind))


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(RANDOM_MOMENTS))
def test_a_run_killed_at_a_random_moment_ends_with_the_bits_of_an_uninterrupted_one(
    shared_place, tmp_path, whole_runs, moment
):
    chance = random.Random(moment)
    kind = ("grpo", "ppo")[moment % 2]
    process = call(shared_place, tmp_path, kind)
    step = chance.randrange(STEPS - 3)
    run = tmp_path / "runs" / "tried"
    wait_until(lambda: step in steps_of(run), PATIENCE, f"step {step}")
    time.sleep(chance.random() * 0.3)
    process.send(signal.SIGKILL)
    killed(process)
    assert not (run / "summary.json").exists(), "it was killed before its end"
    assert_same_end(finished(call(shared_place, tmp_path, kind)), whole_runs(kind))
