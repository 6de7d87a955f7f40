"""Every estimator from one warm start: held-out success before and after 90 seconds of training, over several seeds.

    .venv/bin/python bench/estimators.py --jobs 2

A cell is one run of one estimator with one seed, in a process of its own with one thread. All start from the same
model: the warm start of the world's GRPO preset, made once. What is done is kept in `results.json`, so a stopped
measurement goes on where it was. The table counts the episodes of all seeds together; each seed plays the same
held-out tasks. Seconds are those of training, by the clock: on a busy machine they hold fewer steps.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from openmanus_rl.files import write_json, write_text
from openmanus_rl.tracking.stats import Interval, wilson
from openmanus_rl.trainer.side_run import MODEL

EXAMPLES = Path(__file__).parent.parent / "examples"
SETTINGS: dict[str, tuple[str, ...]] = {
    "grpo": ("maze_grpo.yaml",),
    "drgrpo": ("maze_grpo.yaml", "algorithm.aggregation=seq-mean-token-sum-norm"),
    "rloo": ("maze_grpo.yaml",),
    "reinforce_pp": ("maze_grpo.yaml", "rollout.tasks_per_step=128", "rollout.group_size=1"),
    "reinforce_pp_baseline": ("maze_grpo.yaml",),
    "remax": ("maze_grpo.yaml", "rollout.tasks_per_step=64", "rollout.group_size=2"),
    "process": ("maze_grpo.yaml",),
    "gigpo": ("maze_grpo.yaml",),
    "gae": ("maze_ppo.yaml", "algorithm.options.gamma=1.0", "algorithm.options.lam=0.95"),
    "turn_gae": ("maze_ppo.yaml",),
}
"""The preset each is trained with, and what it needs besides. All learn from 128 sampled episodes a step."""

HEADER = "| estimator | warm start | after | each seed | steps | apart |"
"""`apart`: whether the intervals before and after are."""


@dataclass(frozen=True)
class Cell:
    """One run: an estimator and a seed."""

    estimator: str
    seed: int

    def words(self, seconds: float) -> list[str]:
        """How its run differs from every default; results of other words are not its own."""
        preset, *settings = SETTINGS[self.estimator]
        return [
            *("--config", preset, f"algorithm.estimator={self.estimator}", *settings),
            *(f"trainer.seed={self.seed}", f"trainer.max_seconds={seconds:g}", "trainer.steps=100000"),
            # A rate that falls over the steps would not know when the time is up.
            "actor.final_lr_ratio=1.0",
            *(["critic.final_lr_ratio=1.0"] if preset == "maze_ppo.yaml" else []),
            *("trainer.validate_every=100000", "trainer.save_every=100000", "trainer.threads=1"),
        ]


class Bench:
    """The directory of a measurement: the warm start, the runs, and what is known of them."""

    def __init__(self, home: Path, seconds: float, prefix: Sequence[str]) -> None:
        self.home, self.seconds, self.prefix = home, seconds, list(prefix)
        self.results = home / "results.json"
        self.known: dict[str, dict[str, Any]] = json.loads(self.results.read_text()) if self.results.exists() else {}
        self.writing = Lock()

    def make_warm_start(self) -> None:
        if not (self.home / "warm_start" / MODEL).exists():
            print("the warm start that all begin with", flush=True)
            words = ["--config", str(EXAMPLES / "maze_grpo.yaml"), "--output", str(self.home / "warm_start")]
            self._run("sft", [*words, "trainer.threads=1"], self.home / "warm_start.log")

    def is_measured(self, cell: Cell) -> bool:
        return self.known.get(_key(cell), {}).get("words") == cell.words(self.seconds)

    def measure(self, cell: Cell) -> None:
        """Train, and keep what came of it. A run that was interrupted goes on."""
        place = self.home / _key(cell)
        flag, preset, *words = cell.words(self.seconds)
        words = [flag, str(EXAMPLES / preset), *words, f"trainer.runs_dir={place}", "--model"]
        self._run("train", [*words, str(self.home / "warm_start" / MODEL)], self.home / f"{_key(cell)}.log")
        summary = json.loads(max(place.glob("*/summary.json"), key=lambda path: path.stat().st_mtime).read_text())
        with self.writing:
            self.known[_key(cell)] = {"words": cell.words(self.seconds), **summary}
            write_json(self.results, self.known)
        before, after = (Interval(**summary[when]) for when in ("success_before", "success_after"))
        print(f"{_key(cell)}: {before} → {after} in {summary['steps']} steps", flush=True)

    def table(self, estimators: Sequence[str], seeds: Sequence[int]) -> str:
        """Markdown: one estimator a line, the seeds that are measured counted together."""
        lines = [HEADER, "|---|---|---|---|---|---|"]
        for name in estimators:
            found = [self.known[_key(cell)] for cell in _cells([name], seeds) if self.is_measured(cell)]
            if not found:
                continue
            before, after = (_together([one[when] for one in found]) for when in ("success_before", "success_after"))
            each = ", ".join(f"{100 * one['success_after']['rate']:.1f}" for one in found)
            steps = ", ".join(str(one["steps"]) for one in found)
            apart = "yes" if after.is_above(before) else "no"
            lines.append(f"| `{name}` | {before} | {after} | {each} % | {steps} | {apart} |")
        return "\n".join(lines) + "\n"

    def _run(self, verb: str, words: Sequence[str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [*self.prefix, str(Path(sys.executable).with_name("openmanus-rl")), verb, *words]
        with log.open("w") as output:
            code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
        if code:
            raise SystemExit(f"{shlex.join(command)} failed, see {log}")


def main(words: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(words)
    bench = Bench(arguments.home, arguments.seconds, shlex.split(arguments.prefix))
    bench.make_warm_start()
    seeds = range(arguments.seeds)
    missing = [cell for cell in _cells(arguments.estimators, seeds) if not bench.is_measured(cell)]
    print(f"{len(missing)} cells of about {arguments.seconds + 30:.0f} s, {arguments.jobs} at a time", flush=True)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for done in as_completed([pool.submit(bench.measure, cell) for cell in missing]):
            done.result()
            write_text(arguments.home / "table.md", bench.table(arguments.estimators, seeds))
    print(bench.table(arguments.estimators, seeds))


def _cells(estimators: Iterable[str], seeds: Sequence[int]) -> list[Cell]:
    return [Cell(name, seed) for seed in seeds for name in estimators]


def _key(cell: Cell) -> str:
    return f"{cell.estimator}-{cell.seed}"


def _together(intervals: Sequence[dict[str, Any]]) -> Interval:
    """The episodes of several measurements as one."""
    return wilson(sum(round(one["rate"] * one["n"]) for one in intervals), sum(one["n"] for one in intervals))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--estimators", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=90, help="of training, for each cell")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--prefix", default="", help="a command that each run is started through, such as 'nice'")
    parser.add_argument("--home", type=Path, default=Path("runs/estimators"))
    return parser


if __name__ == "__main__":
    main()
