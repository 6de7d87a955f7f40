"""A disk that fills up in mid-run, and checkpoints that cannot be used, as somebody at the command line meets them."""

import os
import shutil
import subprocess

import pytest
from tiny_runs import PATIENCE, TinyPlace, server_pids, steps_of, wait_until

from openmanus_rl.tracking.checkpoints import find_damage, latest_checkpoint

ENDLESS = ["trainer.steps=5000", "trainer.save_every=1", "trainer.validate_every=2500"]


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 24 MB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", place], capture_output=True).returncode:
        pytest.skip("a disk of its own takes the right to mount one")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk):
    """Leave no room at all."""
    with (disk / "filler").open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue


def test_a_full_disk_ends_the_run_with_one_line_and_its_last_checkpoint_goes_on(
    shared_place, start_cli, cli, small_disk
):
    place = TinyPlace(shared_place, small_disk / "runs")
    run = place.runs / "maze-grpo"
    process = start_cli(*place.command(*ENDLESS))
    wait_until(lambda: 3 in steps_of(run), PATIENCE, "step 3")
    fill(small_disk)
    result = process.wait(PATIENCE)
    assert result.code == 2
    assert "Traceback" not in result.err
    assert result.err.startswith("openmanus-rl: error: the ")
    assert "full" in result.err
    assert len(result.err.splitlines()) == 2, "what went wrong, and what to do"
    last = latest_checkpoint(run / "checkpoints")
    assert f"The checkpoint of step {last.step} is untouched." in result.err
    assert find_damage(last.path) is None
    assert server_pids(run) == []

    (small_disk / "filler").unlink()
    result = cli("train", f"trainer.resume={run}", f"trainer.steps={last.step + 2}")
    assert result.code == 0, result.err
    assert f"resumed after step {last.step} from" in result.out
    assert steps_of(run) == list(range(last.step + 3))


def test_from_the_command_line_a_truncated_and_a_foreign_checkpoint_are_passed_over(place, cli, grpo_run, ppo_run):
    """The two newest of three are unusable: one was cut off, the other belongs to another run."""
    run = place.runs / "maze-grpo"
    shutil.copytree(grpo_run, run)
    checkpoints = run / "checkpoints"
    state = checkpoints / "step_000003" / "trainer_state.pt"
    os.truncate(state, 100)
    shutil.copytree(ppo_run / "checkpoints" / "step_000003", checkpoints / "step_000004")
    result = cli("train", f"trainer.resume={run}", "trainer.steps=5", f"trainer.runs_dir={place.runs}")
    assert result.code == 0, result.err
    assert "a checkpoint was passed over: step_000004: it is of step 3" in result.out
    assert "a checkpoint was passed over: step_000003: trainer_state.pt has 100 bytes instead of" in result.out
    assert "resumed after step 2 from" in result.out
    assert steps_of(run) == [0, 1, 2, 3, 4, 5]


def test_from_the_command_line_a_run_without_a_usable_checkpoint_says_so(place, cli, grpo_run):
    run = place.runs / "maze-grpo"
    shutil.copytree(grpo_run, run)
    for path in (run / "checkpoints").iterdir():
        (path / "manifest.json").unlink()
    result = cli("train", f"trainer.resume={run}", "trainer.steps=5")
    assert result.code == 2
    assert "Traceback" not in result.err
    assert (
        f"openmanus-rl: error: no checkpoint in {run / 'checkpoints'} can be used (step_000003: it has no" in result.err
    )
