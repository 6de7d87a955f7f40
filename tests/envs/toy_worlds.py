"""Tiny worlds for the tests of the service: one that behaves, and ones that hang, crash or answer nonsense."""

import threading
import time
from collections.abc import Iterator
from typing import Any

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Observation,
    Split,
    StepResult,
    Task,
)
from openmanus_rl.errors import UserError


class Counter(Environment):
    """Count to `goal` with `up`. Every step pays the new count; item `counter_<n>` starts at n."""

    name = "counter"
    grammar = ActionGrammar((ActionForm("up", "up"),))
    success_rule = "the goal is reached"
    score_range = (0.0, 100.0)

    def __init__(self, goal: int = 3, wording: str = "native") -> None:
        self.goal = goal
        self.wording = wording
        self.count = 0
        self.acted = 0
        self.thread = threading.get_ident()

    def instructions(self) -> str:
        return f"Count to {self.goal}. Actions: {self.grammar.describe()}."

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        yield f"{cls.name}_0"

    def reset(self, task: Task) -> Observation:
        name, _, number = task.item_id.rpartition("_")
        if name != self.name:
            raise UserError(f"{task.item_id!r} is not an item of {self.name}", f"For example: {self.name}_0.")
        self.count = int(number)
        return self._seen()

    def step(self, action: str) -> StepResult:
        if self.count >= self.goal:
            raise EpisodeOver("counted")
        assert threading.get_ident() == self.thread, "a world is used from one thread only"
        self.acted += 1
        self.misbehave(action)
        self.count += action == "up"
        won = self.count >= self.goal
        return StepResult(self._seen(), float(self.count), won, False, won, {"acted": self.acted})

    def misbehave(self, action: str) -> None:
        """What the worlds below do differently."""

    def state_key(self) -> str:
        return f"at {self.count}"

    def expert_action(self) -> str:
        return "up"

    def snapshot(self) -> int:
        return self.count

    def restore(self, snapshot: int) -> None:
        self.count = snapshot

    def filtered_vocab(self) -> list[str]:
        return ["up"]

    def _seen(self) -> Observation:
        return Observation(f"{self.wording}: {self.count} of {self.goal}")


class Moody(Counter):
    """Hangs for `nap` seconds or until `wake` is set, sleeps a moment, crashes or talks nonsense when told to."""

    wake = threading.Event()

    def __init__(self, goal: int = 3, nap: float = 30.0) -> None:
        super().__init__(goal)
        self.nap = nap

    def misbehave(self, action: str) -> None:
        if action == "hang":
            self.wake.wait(self.nap)
        if action == "doze":
            time.sleep(0.2)
        if action == "crash":
            raise ValueError("the secret is 42")
        if action == "exit":
            raise SystemExit(1)

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        if action == "nonsense":
            return StepResult(result.observation, float("nan"), False, False, False, {"odd": {1, 2}})
        return result

    def snapshot(self) -> int:
        raise NotImplementedError("a moody world cannot be snapshotted")


class StuckAtBirth(Counter):
    """Cannot be built."""

    def __init__(self) -> None:
        raise UserError("the model of the world is missing", "Install it.")


class Textcraft(Counter):
    """A counter that calls itself textcraft, to be served on those routes."""

    name = "textcraft"


class Maze(Counter):
    name = "maze"


class Wordle(Counter):
    name = "wordle"
