"""Mazes that try the patience of a run: given to it as `path/to/trying_worlds.py:SlowMaze`."""

import itertools
import os
import signal
import time
from pathlib import Path

from openmanus_rl.envs.maze import Maze

SECONDS = 600


class SlowMaze(Maze):
    """A training step never ends, so that a test can do something in the middle of one; its log says that it began."""

    def reset(self, task):
        self.slow = task.extra["split"] == "train"
        return super().reset(task)

    def step(self, action):
        if self.slow:
            print("a training step began", flush=True)
            time.sleep(SECONDS)
        return super().step(action)


class FatalMaze(Maze):
    """Kills the run or its own server at a chosen start of a training task: the file `fate` says which, once.

    The file lies beside this one, so a test makes a copy of its own with `arm`.
    """

    starts = itertools.count(1)

    def reset(self, task):
        if task.extra["split"] == "train":
            meet_fate(next(self.starts))
        return super().reset(task)


def meet_fate(start):
    fate = Path(__file__).with_name("fate")
    try:
        victim, moment = fate.read_text().split()
        if start < int(moment):
            return
        fate.unlink()
    except FileNotFoundError:  # it was met before, or there is none
        return
    os.kill(os.getppid() if victim == "run" else os.getpid(), signal.SIGKILL)


def arm(directory, victim, moment):
    """A copy of this file in `directory` whose `FatalMaze` kills the victim; the override that chooses that world."""
    directory.mkdir(parents=True, exist_ok=True)
    copy = directory / "trying_worlds.py"
    copy.write_text(Path(__file__).read_text())
    (directory / "fate").write_text(f"{victim} {moment}")
    return f"env.name={copy}:FatalMaze"
