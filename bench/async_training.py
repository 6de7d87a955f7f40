"""What `rollout.ahead=1` makes of a step, in a world that takes as long to answer as the model takes to sample.

    .venv/bin/python bench/async_training.py
    .venv/bin/python bench/async_training.py --success

A run that takes turns shows how long playing and training take, each alone: its step is their sum. The same run with
one step ahead should take as long as the longer of the two. The two kinds of run alternate; times are medians over all
their steps but the first two and the last, which validates. Engine and trainer have one thread each. `--success` trains
the preset to its end both ways instead, in the world without latency, and compares held-out success.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slow_maze import LATENCY

from openmanus_rl.tracking.metrics import read_metrics
from openmanus_rl.tracking.stats import Interval

ROOT = Path(__file__).parents[1]
CORRECTED = ["actor.proximal=recompute", "algorithm.correction.kind=token", "trainer.threads=1"]
STEPS_TO_WARM_UP = 2


def main() -> None:
    arguments = _parser().parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = Runs(arguments.place or Path(scratch), arguments.steps, arguments.overrides)
        if arguments.success:
            compare_success(runs, arguments.seeds)
        else:
            compare_steps(runs, arguments.alternations)


def compare_steps(runs: "Runs", alternations: int) -> float:
    """A step ahead as a multiple of the longer part alone."""
    latency = settled_latency(runs)
    print(f"a turn is sampled in {latency * 1e3:.0f} ms, and as long takes the world to answer")
    playing, training, turns, ahead = [], [], [], []
    for _ in range(alternations):
        for line, seconds in runs.steps(0, latency):
            playing.append(line["timing_s/gen"])
            training.append(seconds - line["timing_s/gen"])
            turns.append(seconds)
        ahead += [seconds for _, seconds in runs.steps(1, latency)]
    rollout, update, step_in_turns, step = map(statistics.median, (playing, training, turns, ahead))
    print(f"alone: playing {rollout:.2f} s, training {update:.2f} s; a step in turns {step_in_turns:.2f} s")
    ratio = step / max(rollout, update)
    print(f"one step ahead: {step:.2f} s, {ratio:.2f} x the longer; wanted: at most 1.15")
    return ratio


def settled_latency(runs: "Runs") -> float:
    """Seconds that sampling a turn takes while the world takes as long: half of the episodes sample at a time."""
    return runs.seconds_per_turn(runs.seconds_per_turn(0.0))


def compare_success(runs: "Runs", seeds: int) -> list[tuple[Interval, Interval]]:
    """Held-out success after training in turns and one step ahead, for each seed."""
    return [(_success(runs, 0, seed), _success(runs, 1, seed)) for seed in range(seeds)]


def _success(runs: "Runs", ahead: int, seed: int) -> Interval:
    summary = json.loads((runs.train(ahead, [f"trainer.seed={seed}"]) / "summary.json").read_text())
    before, after = (Interval(**summary[key]) for key in ("success_before", "success_after"))
    print(f"seed {seed}, ahead={ahead}: {before} -> {after}, {summary['train_seconds']:.0f} s of training", flush=True)
    return after


class Runs:
    """Training runs of the preset for mazes, in a directory of their own."""

    def __init__(self, place: Path, steps: int, overrides: Sequence[str] = ()) -> None:
        self.place = place
        self.length = steps
        self.overrides = overrides

    def steps(self, ahead: int, latency: float) -> list[tuple[dict[str, float], float]]:
        """The metrics of each step, and its seconds."""
        lines = read_metrics(self.train(ahead, self._short(self.length), latency) / "metrics.jsonl")
        seconds = [line["time"] - before["time"] for before, line in itertools.pairwise(lines)]
        # The last step also validates.
        return list(zip(lines[1:], seconds, strict=True))[STEPS_TO_WARM_UP:-1]

    def seconds_per_turn(self, latency: float) -> float:
        run = self.train(0, [*self._short(STEPS_TO_WARM_UP), "tracking.train_episodes_per_step=999"], latency)
        last = sorted((run / "episodes").glob("train_*.jsonl"))[-1]
        episodes = [json.loads(line) for line in last.read_text().splitlines()]
        return statistics.mean(turn["generate_seconds"] for episode in episodes for turn in episode["turns"])

    def train(self, ahead: int, words: list[str], latency: float | None = None) -> Path:
        """Train the preset, in mazes with a latency or as it is; the run's directory."""
        runs = self.place / "trainer.runs_dir"
        name = f"run-{len(list(runs.glob('run-*')))}"
        world = [] if latency is None else [f"env.name={Path(__file__).with_name('slow_maze.py')}:SlowMaze"]
        places = [f"{key}={self.place / key}" for key in ("data.dir", "trainer.cache_dir", "trainer.runs_dir")]
        command = [str(Path(sys.executable).with_name("openmanus-rl")), "train"]
        command += ["--config", str(ROOT / "examples" / "maze_grpo.yaml"), f"rollout.ahead={ahead}", *CORRECTED]
        command += [f"trainer.name={name}", *places, *world, *words, *self.overrides]
        variables = {**os.environ, LATENCY: str(latency or 0.0)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return runs / name

    def _short(self, steps: int) -> list[str]:
        return [f"trainer.steps={steps}", f"trainer.validate_every={steps}", "data.validation_tasks=16"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8, help="steps of each short run")
    parser.add_argument("--alternations", type=int, default=1)
    parser.add_argument("--place", type=Path, help="a directory for runs, data and models; default: a new one")
    parser.add_argument("--success", action="store_true", help="train to the end and compare held-out success")
    parser.add_argument("--seeds", type=int, default=1, help="with --success")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    return parser


if __name__ == "__main__":
    main()
