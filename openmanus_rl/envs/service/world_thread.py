"""A thread per world: a world that blocks or hangs holds up nobody else.

Worlds are plain synchronous Python and may only be used from one thread (a SQLite connection, a browser), so each
session's calls run on its own thread, one after another. The event loop only waits, and never past a deadline.
"""

import asyncio
import functools
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from openmanus_rl.envs.base import EpisodeOver
from openmanus_rl.errors import UserError

T = TypeVar("T")
Outcome = tuple[Any, BaseException | None]

log = logging.getLogger(__name__)

SPOKEN_ERRORS = (EpisodeOver, UserError, NotImplementedError)
"""Exceptions by which a world answers a caller; any other is the world's own fault."""


class WorldHung(Exception):
    """The world did not come back in time. Its thread is given up: it ends when the world does."""


class WorldCrashed(Exception):
    """The world raised. The message names the exception's type only: its text may tell the answer to the task."""


class WorldThread:
    """Runs calls one after another on a daemon thread: a hung one keeps neither the loop nor the exit waiting."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=_work, args=(self._jobs,), daemon=True, name="world")
        self._thread.start()

    async def call(self, function: Callable[[], T], seconds: float) -> T:
        """The function's result, or `WorldHung` after so many seconds, or what it raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def deliver(outcome: Outcome) -> None:
            if not future.done():  # the deadline passed, or the waiter is gone
                future.set_result(outcome)

        def work() -> None:
            loop.call_soon_threadsafe(deliver, _outcome(function))

        self._jobs.put(work)
        timer = loop.call_later(seconds, deliver, (None, WorldHung(f"the world did not answer for {seconds:g} s")))
        try:
            value, error = await future
        finally:
            timer.cancel()
        if error is not None:
            raise error
        result: T = value
        return result

    def end(self, last: Callable[[], None] | None = None) -> None:
        """Let the thread end once it is free, after one last call that nobody waits for."""
        if last is not None:
            self._jobs.put(functools.partial(_outcome, last))
        self._jobs.put(None)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


def _outcome(function: Callable[[], Any]) -> Outcome:
    try:
        return function(), None
    except SPOKEN_ERRORS as error:
        return None, error
    except BaseException as error:
        log.exception("a world raised")
        return None, WorldCrashed(f"the world raised {type(error).__name__}; the server's log has the details")


def _work(jobs: "queue.SimpleQueue[Callable[[], Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except RuntimeError:
            return  # the event loop is closed: the server has stopped
