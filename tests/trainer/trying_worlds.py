"""Mazes that try the patience of a run: given to it as `path/to/trying_worlds.py:SlowMaze`."""

import os
import signal
import time
from pathlib import Path

from openmanus_rl.envs.maze import Maze

SECONDS = 8


class SlowMaze(Maze):
    """A training step takes its time, so that a test can do something in the middle of one; the log says it began."""

    def reset(self, task):
        self.slow = task.extra.get("split") == "train"
        return super().reset(task)

    def step(self, action):
        if self.slow:
            print("a training step began", flush=True)
            time.sleep(SECONDS)
        return super().step(action)


class FatalMaze(Maze):
    """Kills the run or its own server in the middle of training episodes: the file `fate` says which, and when.

    The file lies beside this one, so a test makes a copy of its own with `arm`.
    """

    starts = 0

    def reset(self, task):
        self.trains = task.extra.get("split") == "train"
        FatalMaze.starts += self.trains
        return super().reset(task)

    def step(self, action):
        if self.trains:
            meet_fate(self.starts)
        return super().step(action)


def meet_fate(starts):
    fate = Path(__file__).with_name("fate")
    try:
        victim, how_often, moment = fate.read_text().split()
        if starts < int(moment):
            return
        if how_often == "once":
            fate.unlink()
    except FileNotFoundError:  # it was met before, or there is none
        return
    os.kill(os.getppid() if victim == "run" else os.getpid(), signal.SIGKILL)


def arm(directory, fate):
    """A copy of this file in `directory` with a fate, such as `run once 40`: from the 40th start of a training task.

    What is returned is the override that chooses its `FatalMaze`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    copy = directory / "trying_worlds.py"
    copy.write_text(Path(__file__).read_text())
    (directory / "fate").write_text(fate)
    return f"env.name={copy}:FatalMaze"
