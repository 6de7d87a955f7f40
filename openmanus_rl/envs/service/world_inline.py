"""Calls on the event loop, for worlds whose steps take microseconds: handing one to a thread would cost more than it.

The event loop is kept free all the same. A session steps on its own thread while at least `SLOW_CALLS` steps of its
task, and more than `SLOW_SHARE` of them, took longer than `BUDGET_SECONDS`. Everything but steps runs on the thread
until `SURE_CALLS` such calls of the server's sessions were as quick. A call that does not end is cut off by an alarm
signal after `ALARM_SECONDS`.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.service.runner import Outcome, Overdue, WorldHung, outcome_of
from openmanus_rl.envs.service.world_thread import WorldThread

T = TypeVar("T")

BUDGET_SECONDS = 0.005
SLOW_CALLS = 3
SLOW_SHARE = 0.05
"""A first step may have something to load, and a busy machine keeps a quick step waiting now and then."""
SURE_CALLS = 32
ALARM_SECONDS = 2.0
TICK_SECONDS = 0.25


class Pace:
    """How long calls of one kind took."""

    def __init__(self) -> None:
        self._calls = self._slow_calls = 0

    def count(self, seconds: float) -> None:
        self._calls += 1
        if seconds > BUDGET_SECONDS:
            self._slow_calls += 1

    @property
    def is_slow(self) -> bool:
        return self._slow_calls >= SLOW_CALLS and self._slow_calls > SLOW_SHARE * self._calls

    @property
    def is_surely_quick(self) -> bool:
        return self._calls >= SURE_CALLS and not self.is_slow


class InlineWorld(WorldThread):
    """A world that is used where the requests are, as long as it is quick. Its calls may change threads."""

    def __init__(self, others: Pace) -> None:
        """`others` is the pace of all but steps, in all sessions of the server."""
        super().__init__()
        self._others = others
        self._steps = Pace()

    async def build(self, world: type[Environment], options: Mapping[str, Any], seconds: float) -> None:
        self._world = await self._other(lambda _: world(**options), None, seconds)

    async def start(self, function: Callable[[Environment], T], seconds: float) -> T:
        self._steps = Pace()
        return await self.call(function, seconds)

    async def call(self, function: Callable[[Environment], T], seconds: float) -> T:
        return await self._other(function, self.world, seconds)

    async def step(self, function: Callable[[Environment], T], seconds: float) -> T:
        if self._steps.is_slow:
            return await self._there(function, self.world, seconds, self._steps)
        return self._here(function, self.world, seconds, self._steps)

    async def _other(self, function: Callable[[Any], T], argument: Any, seconds: float) -> T:
        if self._others.is_surely_quick:
            return self._here(function, argument, seconds, self._others)
        return await self._there(function, argument, seconds, self._others)

    def _here(self, function: Callable[[Any], T], argument: Any, seconds: float, pace: Pace) -> T:
        began = time.monotonic()
        value, error = _watch.outcome(began + min(seconds, ALARM_SECONDS), function, argument)
        pace.count(time.monotonic() - began)
        if error is not None:
            raise error
        result: T = value
        return result

    async def _there(self, function: Callable[[Any], T], argument: Any, seconds: float, pace: Pace) -> T:
        def timed() -> T:
            began = time.monotonic()
            try:
                return function(argument)
            finally:
                pace.count(time.monotonic() - began)

        return await self._run(timed, seconds)


class _Watch:
    """Looks at the clock now and then, by a signal that arrives in the midst of whatever runs on the main thread."""

    def __init__(self) -> None:
        self._deadline = float("inf")

    def start(self) -> None:
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, TICK_SECONDS, TICK_SECONDS)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)

    def outcome(self, deadline: float, function: Callable[[Any], Any], argument: Any) -> Outcome:
        """The outcome of a call that is cut off at its deadline. Whatever is raised into it does not leave here."""
        try:
            self._deadline = deadline
            outcome = outcome_of(function, argument)
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
