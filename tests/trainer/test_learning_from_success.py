"""Rejection sampling makes an agent better, with intervals apart: the figure of docs/self-improvement.md."""

import json
from pathlib import Path

import pytest

from openmanus_rl.tracking.stats import Interval
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.evolve import run_evolve

PRESET = Path(__file__).parents[2] / "examples/small_maze.yaml"


@pytest.mark.slow
def test_a_round_of_rejection_sampling_raises_held_out_success(tmp_path):
    places = [f"data.dir={tmp_path / 'data'}", f"trainer.cache_dir={tmp_path / 'cache'}"]
    run_evolve(load_checked_config(PRESET, places), tmp_path / "run")
    before, after = (Interval(**entry) for entry in json.loads((tmp_path / "run/summary.json").read_text())["success"])
    assert after.is_above(before)
