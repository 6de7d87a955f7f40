"""Runs of seconds: a model of a few thousand weights in mazes of nine cells, and a way to look at what they left."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from openmanus_rl.config.schema import RunConfig

GRPO: dict[str, Any] = {
    "env": {"name": "maze", "options": {"size": 3}},
    "data": {"train_tasks": 64, "validation_tasks": 12},
    "model": {"tiny": {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64}, "max_context": 512},
    "warm_start": {"demonstrations": 64, "epochs": 4, "lr": 0.01, "batch_tokens": 1024},
    "agent": {"max_turns": 4, "max_tokens_per_turn": 12},
    "rollout": {"tasks_per_step": 4, "group_size": 2},
    "algorithm": {"estimator": "grpo"},
    "trainer": {"steps": 3, "validate_every": 2, "save_every": 2, "threads": 1},
    "tracking": {"train_episodes_per_step": 64},
}
PPO = {
    **GRPO,
    "rollout": {"tasks_per_step": 8, "group_size": 1},
    "algorithm": {"estimator": "turn_gae"},
}


class TinyPlace:
    """Data, warm-started models and presets that all tests of a session share; runs go to `runs`, a test's own."""

    def __init__(self, shared: Path, runs: Path) -> None:
        self.shared = shared
        self.runs = runs
        self.grpo = self._preset("grpo", GRPO)
        self.ppo = self._preset("ppo", PPO)

    def words(self, *overrides: str) -> list[str]:
        """Overrides that put everything in its place, and `overrides`."""
        return [
            f"data.dir={self.shared / 'data'}",
            f"trainer.cache_dir={self.shared / 'cache'}",
            f"trainer.runs_dir={self.runs}",
            *overrides,
        ]

    def config(self, *overrides: str, preset: Path | None = None) -> RunConfig:
        from openmanus_rl.trainer.checked_config import load_checked_config  # imports torch, which most tests do not

        return load_checked_config(preset or self.grpo, self.words(*overrides))

    def command(self, *overrides: str, preset: Path | None = None) -> list[str]:
        """The command line of a training run."""
        return ["train", "--config", str(preset or self.grpo), *self.words(*overrides)]

    def _preset(self, name: str, tree: dict[str, Any]) -> Path:
        path = self.shared / f"{name}.yaml"
        if not path.exists():
            path.write_text(yaml.safe_dump(tree))
        return path


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def undescribed(metrics: dict[str, Any]) -> list[str]:
    """The metrics of a line that docs/metrics.md says nothing of."""
    page = (Path(__file__).parents[1] / "docs/metrics.md").read_text(encoding="utf-8")
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]
    described = [re.sub(r"<\w+>", ".+", name) for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)]
    named = metrics.keys() - {"step", "time"}
    return sorted(name for name in named if not any(re.fullmatch(pattern, name) for pattern in described))


def steps_of(run: Path) -> list[int]:
    """The steps in the run's metrics, in the order of the file; a line that is being written does not count."""
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["step"] for line in lines if line.endswith("\n")]


def drawn_tasks(run: Path, steps: Sequence[int]) -> list[str]:
    """The tasks that were trained on, in order, each as often as it was drawn."""
    return [
        episode["item_id"]
        for step in steps
        for episode in json_lines(run / "episodes" / f"train_step_{step:06d}.jsonl")
        if episode["sample"] == 0
    ]


def played_tokens(path: Path) -> list[tuple[str, list[list[int]]]]:
    """The tokens of every episode of a file."""
    return [(episode["item_id"], [part["ids"] for part in episode["segments"]]) for episode in json_lines(path)]


PATIENCE = 240.0
"""Seconds that a test waits for what takes a few: the machine may be slow, busy, or stand still for a while."""


def wait_until(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll; every wait in these tests has an end."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def server_pids(run: Path) -> list[int]:
    """Environment servers whose log is in this run's directory: found by what they hold open."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _writes_below(pid, run / "env")]


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.kill(pid, number)


def _writes_below(pid: int, directory: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/fd/1")).is_relative_to(directory.resolve())
    except OSError:  # it has ended, or is not ours
        return False
