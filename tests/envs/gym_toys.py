"""Handmade Gymnasium environments: a frozen lake drawn in text, a guessing game in words, and wrappers."""

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))


class Lake(gymnasium.Env):
    """A square of ice with one hole; the seed decides where start, hole and goal are."""

    action_space = spaces.Discrete(4)

    def __init__(self, size: int = 4) -> None:
        self.size = size
        self.observation_space = spaces.Text(200)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        places = self.np_random.permutation(self.size**2)[:3]
        self.at, self.hole, self.goal = (divmod(int(place), self.size) for place in places)
        return self._drawn(), {}

    def step(self, action):
        down, right = STEPS[action]
        row, column = self.at[0] + down, self.at[1] + right
        if 0 <= row < self.size and 0 <= column < self.size:
            self.at = (row, column)
        ended = self.at in (self.hole, self.goal)
        return self._drawn(), float(self.at == self.goal), ended, False, {}

    def _drawn(self):
        marks = {self.hole: "H", self.goal: "G", self.at: "S"}
        cells = [marks.get((row, column), "F") for row in range(self.size) for column in range(self.size)]
        return "\n".join("".join(cells[row * self.size : (row + 1) * self.size]) for row in range(self.size))


class Guess(gymnasium.Env):
    """Say a number below eight; the answer is whether the secret is higher or lower."""

    action_space = spaces.Text(3, charset="0123456789")
    observation_space = spaces.Text(20)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.secret = int(self.np_random.integers(8))
        return "guess", {}

    def step(self, action):
        number = int(action)
        told = "right" if number == self.secret else "higher" if number < self.secret else "lower"
        return told, float(told == "right"), told == "right", False, {}


class Arm(gymnasium.Env):
    """Its actions are vectors, which no text names."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.asarray(action, np.float32), 1.0, bool(action[0] > 0), False, {}


class TwoWays(gymnasium.ActionWrapper):
    """Makes the arm's vectors two named actions."""

    def __init__(self, environment):
        super().__init__(environment)
        self.action_space = spaces.Discrete(2)

    def action(self, action):
        return np.array([-1.0 if action == 0 else 1.0, 0.0], np.float32)


def in_words(seen):
    """An observation function."""
    return f"the hand is at {seen[0]:+.0f}"
