"""What a world is: the types every environment, the service, the client and the agent share.

- `Task`: one task for ever, on every machine, named by `item_id`.
- `ActionGrammar`: the actions a world accepts; what the agent is shown and what is parsed are this one object.
- `Environment`: plain synchronous Python; `reset`, `step`, `close`, and optional extras.
- `Observation`, `StepResult`: what comes back.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from openmanus_rl.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

Isolation = Literal["inline", "thread", "process"]
LONGEST_ACTION = 20_000
"""Characters; a longer text is no action of any world, so that no pattern is matched against megabytes."""


@dataclass(frozen=True)
class Task:
    """One thing to do in one world. `item_id` alone decides what the task is; `seed` only what is left to chance."""

    env: str
    item_id: str
    seed: int = 0
    prompt: str = ""
    """The instructions shown before the first observation; empty means the environment's own."""
    ground_truth: str | list[str] | None = None
    """For score functions on our side; a server never sends it."""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """What the agent sees."""

    text: str


@dataclass(frozen=True)
class StepResult:
    """What one action led to. `terminated`: the task itself ended; `truncated`: the world's own limit cut it."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    success: bool
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True)
class ActionForm:
    """One form an action may take: `pattern` is matched against the whole action, `shown` is what the agent reads."""

    shown: str
    pattern: str


@dataclass(frozen=True)
class ActionGrammar:
    """The actions of a world, shown to the agent and parsed from this one place."""

    forms: tuple[ActionForm, ...]

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(form.pattern, re.IGNORECASE) for form in self.forms)

    def describe(self) -> str:
        """The forms as the agent is shown them, separated by commas."""
        return ", ".join(form.shown for form in self.forms)

    def parse(self, action: str) -> re.Match[str] | None:
        """The match of the first form that fits the whole action, or None if the action is not one of this world's."""
        if len(action) > LONGEST_ACTION:
            return None
        stripped = action.strip()
        for pattern in self._compiled:
            match = pattern.fullmatch(stripped)
            if match:
                return match
        return None


class EpisodeOver(RuntimeError):
    """A step after the end. `done` never flips back."""


class NoRoom(UserError):
    """A world cannot start another task here at present; a server answers it as being full."""


class Environment(ABC):
    """A world in which one agent does one task at a time. No HTTP, no tokens, no threads.

    Keyword arguments of the constructor are the environment's options (`env.options` in the config).
    """

    name: ClassVar[str]
    grammar: ClassVar[ActionGrammar]
    success_rule: ClassVar[str]
    """In words: when an episode counts as a success."""
    score_range: ClassVar[tuple[float, float]]
    """Lowest and highest return of an episode."""
    requirements: ClassVar[tuple[str, ...]] = ()
    """What must be installed beside this package, as pip or system package names."""
    compilers: ClassVar[tuple[str, ...]] = ()
    """Commands, by the names of their system packages, that `env install` may need for these."""
    isolation: ClassVar[Isolation] = "thread"
    """Where a server runs it, one world a session: `thread`, on a thread of its own; `process`, in a process of its own
    that is killed if it hangs, for worlds that compute for long or run code that may not come back; `inline`, steps on
    the server's event loop, for worlds whose steps are microseconds of plain Python on any thread."""

    session_options: ClassVar[tuple[str, ...] | None] = None
    """Options that whoever reaches a server may set for a session of their own: never a path, code, or a bound of the
    machine. None: those annotated with numbers, `bool` or `Literal`. Who starts a server may set all."""
    served_elsewhere: ClassVar[bool] = False
    """Whether only a server of another program can play it."""
    sessions_at_once: ClassVar[int | None] = None
    """How many episodes of it one server plays at a time; None: as many as the server lets in."""
    expert_seconds: ClassVar[float | None] = None
    """How long `expert_action` may take, where that is longer than a step may."""

    @abstractmethod
    def instructions(self) -> str:
        """What the agent is told before the first observation: the rules and the grammar."""

    @classmethod
    @abstractmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """The ids of a split in a fixed order, for ever the same; no two with the same content, none in two splits."""

    @classmethod  # noqa: B027 - most worlds share nothing
    def warm_up(cls, **options: Any) -> None:
        """Make what all worlds of these options share, before processes for them are forked from this one."""

    def item_of_number(self, number: int) -> str:
        """The item that a bare number means where a protocol names tasks by numbers."""
        return f"{self.name}_{number}"

    @abstractmethod
    def reset(self, task: Task) -> Observation:
        """Start the task. The same task always starts the same way."""

    @abstractmethod
    def step(self, action: str) -> StepResult:
        """Do one action. Raises `EpisodeOver` after the end."""

    def close(self) -> None:  # noqa: B027 - most worlds hold nothing
        """Free what the world holds. Closing twice is fine."""

    def state_key(self) -> str | None:
        """A name of the present state, equal exactly where the future is equal; None if the world has none."""
        return None

    def difficulty(self) -> str | None:
        """How hard the present task is, or of which kind, in a word (`depth_2`): success is told by it too."""
        return None

    def expert_action(self) -> str | None:
        """A good action in the present state, or None if the world knows none."""
        return None

    def expert_thought(self) -> str | None:
        """What leads the expert to its action, in a line that a demonstrator writes before it; None: nothing."""
        return None

    def random_action(self, uniform: float) -> str:
        """A valid action chosen by `uniform` in [0, 1): the random policy, and the demonstrator's errors."""
        raise NotImplementedError(f"{self.name} offers no random action")

    def snapshot(self) -> Any:
        """The whole state as a plain value, for `restore`."""
        raise NotImplementedError(f"{self.name} cannot be snapshotted")

    def restore(self, snapshot: Any) -> None:
        """Return to a snapshot of the same class of environment."""
        raise NotImplementedError(f"{self.name} cannot be restored")

    def render(self) -> str:
        """The state for a person to look at."""
        return ""


def split_of(content: str) -> Split:
    """The split a task belongs to by its content: 80 % train, 10 % validation, 10 % test, on every machine alike.

    Two ids with the same content are therefore never in different splits.
    """
    bucket = stable_hash(content) % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def stable_hash(text: str) -> int:
    """64 bits of SHA-256: the same in every process, unlike `hash`."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
