"""Steps on the event loop, for worlds whose steps take microseconds: handing one to a thread would cost more than it.

The event loop is kept free all the same. A session whose step took longer than `STEP_BUDGET_SECONDS` goes on on its
own thread for good, and a step that does not end is cut off by an alarm signal after `ALARM_SECONDS`. Everything but
steps runs on the thread from the start.
"""

import functools
import signal
import time
from collections.abc import Callable
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.service.runner import Outcome, Overdue, WorldHung, outcome_of
from openmanus_rl.envs.service.world_thread import WorldThread

T = TypeVar("T")

STEP_BUDGET_SECONDS = 0.005
ALARM_SECONDS = 2.0
"""Long enough for a machine that is busy with something else."""
ALARM_REPEATS = 0.1
"""For a world that catches everything."""


class InlineWorld(WorldThread):
    """A world that is stepped where the requests are, as long as it is quick. Its steps may change threads."""

    def __init__(self) -> None:
        super().__init__()
        self._quick = True

    async def step(self, function: Callable[[Environment], T], seconds: float) -> T:
        if not self._quick:
            return await self.call(function, seconds)
        began = time.perf_counter()
        value, error = _within(min(seconds, ALARM_SECONDS), function, self.world)
        self._quick = time.perf_counter() - began <= STEP_BUDGET_SECONDS
        if error is not None:
            raise error
        result: T = value
        return result


def install_alarm() -> None:
    """Once per process, on its main thread, which must be the one of the event loop: signals arrive there."""
    signal.signal(signal.SIGALRM, _raise_overdue)


def _raise_overdue(*_: Any) -> None:
    raise Overdue


def _within(seconds: float, function: Callable[[Environment], Any], world: Environment) -> Outcome:
    """The outcome of a call that the alarm ends after so many seconds.

    Python handles a signal that came before the alarm was turned off at the latest when that call returns, so an
    alarm is never raised outside this function.
    """
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, ALARM_REPEATS)
        try:
            return outcome_of(functools.partial(function, world))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    except Overdue:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        return None, WorldHung(seconds)
