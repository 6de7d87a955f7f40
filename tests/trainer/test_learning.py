"""The promises of the README, kept by the scripts themselves. Minutes each: run with ./test.sh --all."""

import json
import subprocess
from pathlib import Path

import pytest

from openmanus_rl.tracking.stats import Interval

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def summary_of(script: str, runs: Path, *arguments: str, timeout: int = 1500) -> dict:
    command = [f"./{script}", *arguments, f"trainer.runs_dir={runs}", f"data.dir={runs / 'data'}"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=timeout)
    (summary,) = runs.glob("*/summary.json")
    return json.loads(summary.read_text())


@pytest.mark.parametrize("script", ["train_grpo.sh", "train_ppo.sh"])
def test_a_small_agent_learns_to_walk_unseen_mazes_within_five_minutes(script, tmp_path):
    summary = summary_of(script, tmp_path)
    before, after = Interval(**summary["success_before"]), Interval(**summary["success_after"])
    assert before.n >= 256
    assert before.rate <= 0.45
    assert after.rate >= 0.90
    assert summary["train_seconds"] <= 300


def test_a_small_agent_gets_better_at_wordle(tmp_path):
    summary = summary_of("train_grpo.sh", tmp_path, "--env_name", "wordle")
    before, after = Interval(**summary["success_before"]), Interval(**summary["success_after"])
    assert after.is_above(before)
    assert summary["total_seconds"] <= 15 * 60


@pytest.mark.timeout(5400)
def test_a_small_agent_gets_better_at_textcraft(tmp_path):
    summary = summary_of("train_grpo.sh", tmp_path, "--env_name", "textcraft", timeout=5000)
    before, after = Interval(**summary["success_before"]), Interval(**summary["success_after"])
    assert before.n >= 512
    assert after.is_above(before)
