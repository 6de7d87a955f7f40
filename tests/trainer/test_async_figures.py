"""What playing ahead promises, measured: the bench itself, on a machine that does nothing else."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("async_training", ROOT / "bench" / "async_training.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "async_training", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_step_takes_as_long_as_the_longer_of_playing_and_training(bench, tmp_path):
    assert bench.compare_steps(bench.Runs(tmp_path, steps=8), alternations=1) <= 1.15


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_playing_ahead_learns_as_well_as_taking_turns(bench, tmp_path):
    ((in_turns, ahead),) = bench.compare_success(bench.Runs(tmp_path, steps=8), seeds=1)
    assert ahead.rate >= in_turns.low
