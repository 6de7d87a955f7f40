"""Steps on the event loop, for worlds whose steps take microseconds: handing one to a thread would cost more than it.

The event loop is kept free all the same. A session steps on its own thread while at least `SLOW_STEPS` steps of its
task, and more than `SLOW_SHARE` of them, took longer than `BUDGET_SECONDS`. A step that does not end is cut off by an
alarm signal after `ALARM_SECONDS`. Everything but steps runs on the thread anyway.
"""

import functools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.service.runner import Outcome, Overdue, WorldHung, outcome_of
from openmanus_rl.envs.service.world_thread import WorldThread

T = TypeVar("T")

BUDGET_SECONDS = 0.005
SLOW_STEPS = 3
SLOW_SHARE = 0.05
"""A first step may have something to load, and a busy machine keeps a quick step waiting now and then."""
ALARM_SECONDS = 2.0
TICK_SECONDS = 0.25


class InlineWorld(WorldThread):
    """A world that is stepped where the requests are, as long as it is quick. Its steps may change threads."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = self._slow_steps = 0

    async def start(self, function: Callable[[Environment], T], seconds: float) -> T:
        self._steps = self._slow_steps = 0
        return await self.call(function, seconds)

    async def step(self, function: Callable[[Environment], T], seconds: float) -> T:
        if self._slow_steps >= SLOW_STEPS and self._slow_steps > SLOW_SHARE * self._steps:
            return await self.call(functools.partial(self._timed, function), seconds)
        began = time.monotonic()
        value, error = _watch.outcome(began + min(seconds, ALARM_SECONDS), function, self.world)
        self._count(time.monotonic() - began)
        if error is not None:
            raise error
        result: T = value
        return result

    def _timed(self, function: Callable[[Environment], T], world: Environment) -> T:
        began = time.monotonic()
        try:
            return function(world)
        finally:
            self._count(time.monotonic() - began)

    def _count(self, seconds: float) -> None:
        self._steps += 1
        if seconds > BUDGET_SECONDS:
            self._slow_steps += 1


class _Watch:
    """Looks at the clock now and then, by a signal that arrives in the midst of whatever runs on the main thread."""

    def __init__(self) -> None:
        self._deadline = float("inf")

    def start(self) -> None:
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, TICK_SECONDS, TICK_SECONDS)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def outcome(self, deadline: float, function: Callable[[Environment], Any], world: Environment) -> Outcome:
        """The outcome of a call that is cut off at its deadline. Whatever is raised into it does not leave here."""
        try:
            self._deadline = deadline
            outcome = outcome_of(function, world)
            self._deadline = float("inf")
        except Overdue:
            self._deadline = float("inf")
            return None, WorldHung(ALARM_SECONDS)
        return outcome

    def _look(self, *_: Any) -> None:
        if time.monotonic() > self._deadline:
            raise Overdue


_watch = _Watch()


@contextmanager
def alarm_installed() -> Iterator[None]:
    """For the life of a server, on the main thread of its process: signals arrive there."""
    _watch.start()
    try:
        yield
    finally:
        _watch.stop()
