"""A thread per world: a world that blocks or hangs holds up nobody else.

Worlds are plain synchronous Python and may only be used from one thread (a SQLite connection, a browser), so each
session's calls run on its own thread, one after another. The event loop only waits, and never past a deadline.
"""

import asyncio
import functools
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.service.runner import Outcome, Runner, WorldHung, outcome_of

T = TypeVar("T")


class WorldThread(Runner):
    """Runs calls one after another on a daemon thread: a hung one keeps neither the loop nor the exit waiting."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._world: Environment | None = None

    async def build(self, world: type[Environment], options: Mapping[str, Any], seconds: float) -> None:
        self._world = await self._run(lambda: world(**options), seconds)

    async def call(self, function: Callable[[Environment], T], seconds: float) -> T:
        return await self._run(functools.partial(function, self.world), seconds)

    def end(self, *, close_world: bool) -> None:
        """The thread ends once it is free, after closing the world if nobody did: a hung one may come back."""
        if close_world and self._world is not None:
            self._put(functools.partial(outcome_of, self._world.close))
        if self._thread is not None:
            self._jobs.put(None)

    @property
    def held_up(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def world(self) -> Environment:
        assert self._world is not None, "a world is called only after it is built"
        return self._world

    async def _run(self, function: Callable[[], T], seconds: float) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def deliver(outcome: Outcome) -> None:
            if not future.done():  # the deadline passed, or the waiter is gone
                future.set_result(outcome)

        def work() -> None:
            loop.call_soon_threadsafe(deliver, outcome_of(function))

        self._put(work)
        timer = loop.call_later(seconds, deliver, (None, WorldHung(seconds)))
        try:
            value, error = await future
        finally:
            timer.cancel()
        if error is not None:
            raise error
        result: T = value
        return result

    def _put(self, job: Callable[[], Any]) -> None:
        if self._thread is None:
            thread = threading.Thread(target=_work, args=(self._jobs,), daemon=True, name="world")
            thread.start()  # raises where no more threads are to be had
            self._thread = thread
        self._jobs.put(job)


def _work(jobs: "queue.SimpleQueue[Callable[[], Any] | None]") -> None:
    while (job := jobs.get()) is not None:
        try:
            job()
        except RuntimeError:
            return  # the event loop is closed: the server has stopped
