"""A maze whose every answer takes a while, as that of a world over a network would."""

import os
import time

from openmanus_rl.envs.base import Observation, StepResult, Task
from openmanus_rl.envs.maze import Maze

LATENCY = "OPENMANUS_RL_BENCH_LATENCY"
"""The variable that says how many seconds. It is no option of the world: models are made anew for other options."""


class SlowMaze(Maze):
    """Waits without computing; each session waits on a thread of its own."""

    isolation = "thread"

    def reset(self, task: Task) -> Observation:
        time.sleep(_latency())
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        time.sleep(_latency())
        return super().step(action)


def _latency() -> float:
    return float(os.environ.get(LATENCY, "0"))
