"""Tiny worlds for the tests of the service: one that behaves, and ones that hang, crash or answer nonsense."""

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Observation,
    Split,
    StepResult,
    Task,
    stable_hash,
)
from openmanus_rl.envs.items import item_number
from openmanus_rl.errors import UserError


class Counter(Environment):
    """Count to `goal` with `up`. Every step pays the new count; item `counter_<n>` starts at n."""

    name = "counter"
    grammar = ActionGrammar((ActionForm("up", "up"),))
    success_rule = "the goal is reached"
    score_range = (0.0, 100.0)
    session_options = ("goal", "wording")

    def __init__(self, goal: int = 3, wording: str = "native", book: str = "") -> None:
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
        if self.isolation != "inline":
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
            time.sleep(0.3)
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


class Apart(Moody):
    """In a process of its own; says in which, and dies by `die`."""

    isolation = "process"

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return replace(result, info={**result.info, "pid": os.getpid()})

    def misbehave(self, action: str) -> None:
        if action == "spin":
            while True:
                pass
        if action == "die":
            os._exit(3)
        if action == "lambda":
            raise NotImplementedError("nothing of the kind")
        super().misbehave(action)


class Quick(Moody):
    """Stepped on the event loop; says on which thread."""

    isolation = "inline"

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        on_main = threading.current_thread() is threading.main_thread()
        return replace(result, info={**result.info, "on_event_loop": on_main})

    def misbehave(self, action: str) -> None:
        if action == "spin":
            while True:
                pass
        if action == "backtrack":
            re.fullmatch(r"(a+)+b", "a" * 40)
        super().misbehave(action)


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


class Sound(Environment):
    """Say the word that is asked for, three times; wrong words may be said thrice. Keeps every promise."""

    name = "sound"
    grammar = ActionGrammar((ActionForm("left", "left"), ActionForm("right", "right")))
    success_rule = "three right words are said"
    score_range = (-0.5, 1.0)
    numbers: ClassVar[dict[Split, range]] = {"train": range(40), "validation": range(40, 50), "test": range(50, 60)}

    def __init__(self, nap: float = 0.0) -> None:
        self.nap = nap
        self.number = self.right = self.wrong = 0
        self.over = True

    def instructions(self) -> str:
        return f"Say what is asked for. Actions: {self.grammar.describe()}."

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        for number in cls.numbers[split]:
            yield f"{cls.name}_{number}"

    def reset(self, task: Task) -> Observation:
        self.number = item_number(self.name, task.item_id)
        self.right = self.wrong = 0
        self.over = False
        return self.seen()

    def step(self, action: str) -> StepResult:
        if self.over:
            raise EpisodeOver("all is said")
        match = self.grammar.parse(action)
        info = {} if match else {"invalid": f"not one of {self.grammar.describe()}"}
        if match and match[0].lower() == self.word():
            self.right += 1
        else:
            self.wrong += 1
        won, lost = self.right == 3, self.wrong == 3
        self.over = won or lost
        return StepResult(self.seen(), 1.0 if won else -0.5 if lost else 0.0, won, lost, won, info)

    def word(self) -> str:
        return ("left", "right")[stable_hash(f"{self.number} {self.right}") % 2]

    def seen(self) -> Observation:
        return Observation(f"room {self.number}, {self.wrong} wrong: say {self.word()}")

    def state_key(self) -> str:
        return f"{self.number} {self.right} {self.wrong}"

    def expert_action(self) -> str | None:
        return self.word()


class DependsOnHashSeed(Sound):
    def word(self) -> str:
        return ("left", "right")[hash(f"{self.number} {self.right}") % 2]


class CountsItsResets(Sound):
    resets = 0

    def reset(self, task: Task) -> Observation:
        CountsItsResets.resets += 1
        return Observation(f"{super().reset(task).text} (start {CountsItsResets.resets})")


class SharesItsState(Sound):
    """Two sessions at once see each other's progress; one after another they do not."""

    shared: ClassVar[dict[str, int]] = {}

    def reset(self, task: Task) -> Observation:
        self.shared["right"] = 0
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        self.right = self.shared["right"]
        result = super().step(action)
        self.shared["right"] = self.right
        return result


class GoesOnAfterTheEnd(Sound):
    def step(self, action: str) -> StepResult:
        self.over = False
        return super().step(action)


class LeavesATrace(GoesOnAfterTheEnd):
    """Writes a line into a file when it is made, and another when it is closed."""

    def __init__(self, trace: str) -> None:
        super().__init__()
        self.trace = trace
        self.tell("made")

    def close(self) -> None:
        if self.trace:
            self.tell("closed")
            self.trace = ""

    def tell(self, what: str) -> None:
        with open(self.trace, "a") as trace:
            trace.write(f"{what}\n")


class StatesItsGrammarLate(Sound):
    """Its class takes anything for an action, and a world made of it does not."""

    grammar = ActionGrammar((ActionForm("anything", ".*"),))

    def __init__(self, nap: float = 0.0) -> None:
        super().__init__(nap)
        vars(self)["grammar"] = Sound.grammar


class PlaysTwoAtOnce(Sound):
    sessions_at_once = 2
    playing: ClassVar[set[int]] = set()

    def reset(self, task: Task) -> Observation:
        self.playing.add(id(self))
        if len(self.playing) > 2:
            raise RuntimeError("a third one")
        return super().reset(task)

    def close(self) -> None:
        self.playing.discard(id(self))


class HangsOnBadActions(Sound):
    def step(self, action: str) -> StepResult:
        if not self.grammar.parse(action):
            time.sleep(self.nap)
        return super().step(action)


class ShowsWhatItRefuses(Sound):
    grammar = ActionGrammar((ActionForm("left", "left"), ActionForm("turn right", "right")))


class KeepsBadActionsQuiet(Sound):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), info={})


class CrashesOnLongActions(Sound):
    def step(self, action: str) -> StepResult:
        assert len(action) < 1000
        return super().step(action)


class PaysTooMuch(Sound):
    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return replace(result, reward=5.0 if result.success else result.reward)


class SucceedsBeforeTheEnd(Sound):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), success=self.right > 0)


class SameTasksInTwoSplits(Sound):
    numbers: ClassVar[dict[Split, range]] = {"train": range(40), "validation": range(30, 50), "test": range(50, 60)}


class SameTasksByOtherNames(Sound):
    def reset(self, task: Task) -> Observation:
        super().reset(task)
        self.number %= 45
        return self.seen()


class HasABadExpert(Sound):
    def expert_action(self) -> str | None:
        return "left"


class Leaks(Sound):
    kept: ClassVar[list[bytearray]] = []

    def reset(self, task: Task) -> Observation:
        self.kept.append(bytearray(b"x" * 100_000))
        return super().reset(task)
