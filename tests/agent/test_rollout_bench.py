"""The bench of the rollout, on a few episodes."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "bench"))


@pytest.mark.parametrize("name", ["latency", "overhead", "prefix", "faults", "memory"])
def test_the_bench_of_the_rollout_runs(name, capsys):
    import rollout as bench

    bench.MEASURES[name](episodes=8, turns=2)
    assert "wanted: " in capsys.readouterr().out


def test_hardly_more_is_computed_of_prompts_than_is_appended(capsys):
    import rollout as bench

    bench.measure_prefix(episodes=8, turns=6)
    shown = capsys.readouterr().out
    assert float(shown.partition("computed for them: ")[2].split()[0]) <= 1.1
