"""Where a world runs: on the event loop, on a thread or in a process of its own; to a session all look alike.

A call is a function of the world. It ends in time with the function's value, with an exception by which the world
answers its caller, or with `WorldHung` or `WorldCrashed`, after which the runner is used up.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment, EpisodeOver, Observation, StepResult, Task
from openmanus_rl.errors import UserError

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]

log = logging.getLogger(__name__)

SPOKEN_ERRORS = (EpisodeOver, UserError, NotImplementedError)
"""Exceptions by which a world answers a caller; any other is the world's own fault."""


class WorldHung(Exception):
    """The world did not come back in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the world did not answer for {seconds:g} s")


class WorldCrashed(Exception):
    """The world raised. The message names the exception's type only: its text may tell the answer to the task."""


class Overdue(BaseException):
    """Raised into a call from outside, to end it."""


class Runner(ABC):
    """One world, and the place where it runs. Calls come one after another."""

    @abstractmethod
    async def build(self, world: type[Environment], options: Mapping[str, Any], seconds: float) -> None:
        """Make the world."""

    @abstractmethod
    async def call(self, function: Callable[[Environment], T], seconds: float) -> T:
        """What the function makes of the world, within so many seconds. It may have to be picklable."""

    async def start(self, function: Callable[[Environment], T], seconds: float) -> T:
        """The same for a call that starts a task."""
        return await self.call(function, seconds)

    async def step(self, function: Callable[[Environment], T], seconds: float) -> T:
        """The same for a step: the calls that come most."""
        return await self.call(function, seconds)

    @abstractmethod
    def end(self, *, close_world: bool) -> None:
        """Let go of the world, and close it first where nobody did and it can be done without waiting."""

    @property
    def held_up(self) -> bool:
        """Whether a hung world still holds something of the server after the end."""
        return False


def start_task(task: Task, world: Environment) -> tuple[Observation, str | None, str]:
    """The first observation, its state's key, and the instructions."""
    observation = world.reset(task)
    return observation, world.state_key(), world.instructions()


def act(action: str, world: Environment) -> tuple[StepResult, str | None]:
    """One step, and the key of the state it led to."""
    result = world.step(action)
    return result, world.state_key()


def outcome_of(function: Callable[..., Any], *arguments: Any) -> Outcome:
    """The function's value, or the exception to raise in its place."""
    try:
        return function(*arguments), None
    except SPOKEN_ERRORS as error:
        return None, error
    except Overdue:
        raise
    except BaseException as error:
        log.exception("a world raised")
        return None, WorldCrashed(f"the world raised {type(error).__name__}; the server's log has the details")
