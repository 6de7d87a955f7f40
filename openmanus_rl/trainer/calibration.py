"""A run tried out for a minute: training steps of growing size, of which only times and memory are kept.

The steps are the trainer's own, in a directory that is thrown away. They begin with a few episodes and double up to a
whole step, or until there is no time or memory left for the next size; what is larger is then extrapolated from the
last two sizes.
"""

import ctypes
import gc
import time
from collections.abc import Callable, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from rich.console import Console

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.tracking.console import RunConsole
from openmanus_rl.tracking.run_directory import RunDirectory
from openmanus_rl.trainer.footprint import ModelSize, Usage, processes
from openmanus_rl.trainer.inputs import Inputs
from openmanus_rl.trainer.ppo import RayPPOTrainer
from openmanus_rl.trainer.services import environment_servers
from openmanus_rl.trainer.timings import Timings

SECONDS = 60.0
"""For all steps together; a size is not tried that would take longer."""

FIRST_EPISODES = 8


@dataclass(frozen=True)
class Try:
    """One step that was tried: how many tasks, the seconds of its parts, the bytes it took at most, and its tokens."""

    tasks: int
    seconds: dict[str, float]
    bytes: float
    tokens: float


@dataclass(frozen=True)
class Calibration:
    """What the tries say about a whole step."""

    seconds: dict[str, float]
    """Of a step's parts, by the names of `timing_s/…`."""
    validation_seconds: float
    usage: Usage
    share: float
    """Part of a whole step that the largest try had; below 1, the rest is extrapolated."""


def calibrate(
    config: RunConfig, inputs: Inputs, size: ModelSize, fits: Callable[[float], bool], say: Callable[[str], None]
) -> Calibration:
    """Try the config in this process. `fits` says whether so many bytes are to be had; a larger size is not tried."""
    here = _in_this_process(config)
    _give_back_memory()
    program = psutil.Process().memory_info().rss
    with (
        TemporaryDirectory() as scratch,
        environment_servers(config, Path(scratch) / "env", say) as services,
        services.blamed_for_failures(),
        RunDirectory(Path(scratch) / "run") as run,
    ):
        quiet = RunConsole(config.trainer.steps, Console(quiet=True))
        trainer = RayPPOTrainer(here, run, inputs, services.urls, quiet)
        trainer.init_workers()
        with closing(trainer):
            tries, longest = _tries(trainer, program, fits, say)
        servers = [psutil.Process(pid).memory_info().rss for pid in services.pids]
    whole = config.rollout.tasks_per_step
    usage = Usage(
        program=program,
        activations=_activations(here, size, trainer.requires, tries[-1], longest),
        server=max(servers, default=0.0),
        longest=longest,
    )
    seconds = {
        part: value_at(whole, [(t.tasks, t.seconds.get(part, 0.0)) for t in tries]) for part in tries[-1].seconds
    }
    episodes = len(inputs.validation) * config.data.validation_samples / config.rollout.group_size
    validation = value_at(episodes, [(t.tasks, t.seconds["gen"]) for t in tries])
    return Calibration(seconds, validation, usage, share=tries[-1].tasks / whole)


def _in_this_process(config: RunConfig) -> RunConfig:
    """The same work, one thing after the other, with nothing written that a person would read."""
    threads = max(1, config.trainer.threads // 2) if config.rollout.ahead else config.trainer.threads
    changes = {
        "rollout": config.rollout.model_copy(update={"ahead": 0}),
        "trainer": config.trainer.model_copy(update={"executor": "inline", "threads": threads}),
    }
    return config.model_copy(update=changes)


def _tries(
    trainer: RayPPOTrainer, program: float, fits: Callable[[float], bool], say: Callable[[str], None]
) -> tuple[list[Try], int]:
    """Steps of growing size, the whole one twice if there is time; and the tokens of the longest episode."""
    config = trainer.config
    whole, began = config.rollout.tasks_per_step, time.monotonic()
    tasks = min(whole, max(1, FIRST_EPISODES // config.rollout.group_size))
    tries: list[Try] = []
    longest = 0
    while True:
        trainer.config = _with_tasks(config, tasks)
        timings = Timings()
        _forget_peak()
        metrics = trainer.train_step(timings)
        tries.append(Try(tasks, dict(timings.seconds), _peak() - program, metrics["perf/total_num_tokens"]))
        longest = max(longest, int(metrics["perf/max_num_tokens"]))
        say(f"{tasks * config.rollout.group_size} episodes: a step of {timings.seconds['step']:.1f} s")
        is_repeated = len(tries) > 1 and tries[-2].tasks == whole
        following = min(whole, 2 * tasks)
        growth = following / tasks
        too_long = time.monotonic() - began + growth * timings.seconds["step"] > SECONDS
        if is_repeated or too_long or not fits(growth * tries[-1].bytes):
            return tries, longest
        tasks = following


def _activations(config: RunConfig, size: ModelSize, requires: Set[str], last: Try, longest: int) -> float:
    """What a step took beyond what arithmetic knows, for micro-batches as large as those of a whole step."""
    tried = _with_tasks(config, last.tasks)
    tried = tried.model_copy(update={"data": tried.data.model_copy(update={"validation_tasks": 1})})
    known = processes(tried, size, requires, Usage(longest=longest))[0].total
    mini_batch = last.tokens / config.actor.mini_batches
    budget = config.actor.micro_batch_tokens
    growth = min(budget, mini_batch * config.rollout.tasks_per_step / last.tasks) / min(budget, mini_batch)
    return max(0.0, last.bytes - known) * growth


def _with_tasks(config: RunConfig, tasks: int) -> RunConfig:
    return config.model_copy(update={"rollout": config.rollout.model_copy(update={"tasks_per_step": tasks})})


def value_at(size: float, points: Sequence[tuple[float, float]]) -> float:
    """The value for `size`: the mean of those measured there, or on the line through the last two sizes."""
    measured = [value for other, value in points if other == size]
    if measured:
        return sum(measured) / len(measured)
    (last_size, last), earlier = points[-1], [point for point in points if point[0] != points[-1][0]]
    if not earlier:
        return last * size / last_size
    slope = max(0.0, (last - earlier[-1][1]) / (last_size - earlier[-1][0]))
    return max(0.0, last + slope * (size - last_size))


def _give_back_memory() -> None:
    """What was freed goes back to the system, so that what is taken from here on shows."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    """Bytes that this process held at most since `_forget_peak`."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
