"""Rejection sampling and DPO make an agent better, with intervals apart: the figures of docs/self-improvement.md."""

import json
from pathlib import Path

import pytest

from openmanus_rl.tracking.stats import Interval
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.dpo import run_dpo
from openmanus_rl.trainer.evolve import run_evolve

PRESET = Path(__file__).parents[2] / "examples/small_maze.yaml"


@pytest.fixture
def config(tmp_path):
    return load_checked_config(PRESET, [f"data.dir={tmp_path / 'data'}", f"trainer.cache_dir={tmp_path / 'cache'}"])


@pytest.mark.slow
def test_a_round_of_rejection_sampling_raises_held_out_success(config, tmp_path):
    run_evolve(config, tmp_path / "run")
    before, after = (Interval(**entry) for entry in json.loads((tmp_path / "run/summary.json").read_text())["success"])
    assert after.is_above(before)


@pytest.mark.slow
def test_dpo_raises_held_out_success(config, tmp_path):
    run_dpo(config, tmp_path / "run")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert Interval(**summary["success_after"]).is_above(Interval(**summary["success_before"]))
