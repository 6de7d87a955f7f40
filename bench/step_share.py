"""Where the time of a training step goes: the share that is neither sampling nor a model's forward, backward or step.

    .venv/bin/python bench/step_share.py

Trains the default run for a few steps in this process, with clocks around the engine's steps, every outermost call of a
module, every backward and every step of an optimizer. A step lasts from one line of the metrics to the next: rows,
credit, metrics, files and the console are all in it. The first steps warm up; the last one also validates.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from openmanus_rl.inference.scheduler import Scheduler
from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.run import train

ROOT = Path(__file__).parents[1]
WARM_UP = 2


class Clocks:
    """Seconds by kind of work; work within work counts once, for the outer one."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._depth = threading.local()

    def around(self, owner: type, method: str, kind: str) -> None:
        """Time every call of a method of a class."""
        original: Callable[..., Any] = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            if getattr(self._depth, "busy", False):
                return original(*arguments, **named)
            self._depth.busy = True
            began = time.perf_counter()
            try:
                return original(*arguments, **named)
            finally:
                self.seconds[kind] += time.perf_counter() - began
                self._depth.busy = False

        setattr(owner, method, timed)


def shares(words: list[str], steps: int) -> list[dict[str, float]]:
    """For each step its seconds in all and by kind of work, and the `timing_s/…` that the run itself reports."""
    clocks = Clocks()
    clocks.around(Scheduler, "step", "sampling")
    clocks.around(torch.nn.Module, "__call__", "forward")
    clocks.around(torch.Tensor, "backward", "backward")
    clocks.around(torch.optim.AdamW, "step", "optimizer")
    lines: list[dict[str, float]] = []
    append, began = MetricsLog.append, time.perf_counter()

    def noted(log: MetricsLog, step: int, metrics: dict[str, float]) -> None:
        nonlocal began
        append(log, step, metrics)
        now = time.perf_counter()
        timings = {name: value for name, value in metrics.items() if name.startswith("timing_s/")}
        lines.append({"seconds": now - began, **clocks.seconds, **timings})
        clocks.seconds.clear()
        began = now

    MetricsLog.append = noted  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as scratch:
        places = [f"trainer.runs_dir={scratch}", f"trainer.validate_every={steps}", f"trainer.save_every={steps}"]
        short = [f"trainer.steps={steps}", "data.validation_tasks=16"]
        train(load_checked_config(ROOT / "examples" / "maze_grpo.yaml", [*places, *short, *words]))
    return lines[1 + WARM_UP : -1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    lines = shares(arguments.overrides, arguments.steps)
    for name in sorted({name for line in lines for name in line}, key=lambda name: ("/" in name, name)):
        print(f"{name:28} {statistics.median(line.get(name, 0.0) for line in lines):8.3f} s")
    outside = [
        1 - sum(line.get(kind, 0.0) for kind in ("sampling", "forward", "backward", "optimizer")) / line["seconds"]
        for line in lines
    ]
    print(
        f"outside of sampling, forward, backward and optimizer: {statistics.median(outside):.1%}; wanted: at most 10 %"
    )


if __name__ == "__main__":
    main()
