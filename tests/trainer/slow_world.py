"""A maze whose every step takes its time, so that a test can do something in the middle of one."""

import time

from openmanus_rl.envs.maze import Maze

SECONDS = 0.7


class SlowMaze(Maze):
    """Given to runs as `path/to/slow_world.py:SlowMaze`."""

    def step(self, action):
        time.sleep(SECONDS)
        return super().step(action)
