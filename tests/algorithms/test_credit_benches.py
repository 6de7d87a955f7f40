"""The benches of credit run, and measure what they say."""

import importlib.util
import shlex
from pathlib import Path

import pytest
import torch

from openmanus_rl.algorithms.registry import ESTIMATORS
from openmanus_rl.trainer.checked_config import load_checked_config

ROOT = Path(__file__).parents[2]
TINY = shlex.split(
    "model.tiny.hidden_size=32 model.tiny.layers=1 model.tiny.intermediate_size=64 data.train_tasks=16 "
    "warm_start.demonstrations=8 warm_start.epochs=1 agent.max_turns=2 data.validation_tasks=2 rollout.tasks_per_step=4"
)


def load_bench(name: str):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / f"{name}.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    return bench


@pytest.fixture
def _threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("_threads")
def test_the_bench_of_credit_runs(tmp_path, capsys):
    bench = load_bench("credit")
    bench.ROUNDS = 1
    places = [f"data.dir={tmp_path / 'data'}", f"trainer.cache_dir={tmp_path / 'cache'}"]
    bench.main(["--steps", "1", *TINY, *places])
    printed = capsys.readouterr().out
    shares = {line[:38].strip(): line[38:].split() for line in printed.splitlines() if line.endswith("%")}
    assert {"rewards", "KL in the reward", "groups", "advantages", "all of credit"} <= set(shares)
    assert {f"advantages by {name}" for name in built_in()} <= set(shares)
    parts = sum(float(shares[part][0]) for part in ("rewards", "KL in the reward", "groups", "advantages"))
    assert float(shares["all of credit"][0]) == pytest.approx(parts, abs=0.3)
    assert "gigpo on 16,384 turns" in printed


def built_in() -> set[str]:
    return {name for name, entry in ESTIMATORS.items() if entry.function.__module__.startswith("openmanus_rl.")}


def test_the_bench_of_estimators_has_a_sound_config_for_every_one():
    bench = load_bench("estimators")
    assert set(bench.SETTINGS) == built_in()
    for name in bench.SETTINGS:
        _, preset, *words = bench.Cell(name, 1).words(90)
        config = load_checked_config(bench.EXAMPLES / preset, [*words, "model.path=there"])
        assert (config.algorithm.estimator, config.trainer.seed, config.trainer.max_seconds) == (name, 1, 90)
        assert config.rollout.tasks_per_step * config.rollout.group_size == 128, "all learn from as many episodes"


def test_the_documented_table_of_estimators_is_as_the_bench_prints_it():
    bench = load_bench("estimators")
    lines = (ROOT / "docs/algorithms.md").read_text(encoding="utf-8").splitlines()
    first = lines.index(bench.HEADER) + 2
    rows = [line.split("|") for line in lines[first : first + len(bench.SETTINGS)]]
    assert [row[1].strip() for row in rows] == [f"`{name}`" for name in bench.SETTINGS]
    assert {len(row) for row in rows} == {len(bench.HEADER.split("|"))}


@pytest.mark.slow
def test_the_bench_of_estimators_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bench = load_bench("estimators")
    words = ["--estimators", "grpo", "--seeds", "1", "--seconds", "1", "--home", str(tmp_path / "home")]
    bench.main(words)
    assert "1 cells" in capsys.readouterr().out
    table = (tmp_path / "home" / "table.md").read_text()
    assert table.splitlines()[-1].startswith("| `grpo` |")
    bench.main(words)
    printed = capsys.readouterr().out
    assert "0 cells" in printed, "what is measured is kept"
    assert table in printed
