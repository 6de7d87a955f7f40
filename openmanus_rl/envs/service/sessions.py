"""Sessions: who plays which world, for how long, and how far the episode has come.

A session is one world on one thread. It is used by one request at a time, expires when nobody uses it, counts
against a limit, and ends as failed when its world hangs or crashes, without harm to any other session.
"""

import asyncio
import inspect
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment, EpisodeOver, NoRoom, Observation, StepResult, Task
from openmanus_rl.envs.service.problems import Problem, busy, out_of_order
from openmanus_rl.envs.service.world_thread import WorldCrashed, WorldHung, WorldThread
from openmanus_rl.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """What a server bounds."""

    max_sessions: int = 1024
    idle_seconds: float = 1800.0
    """A session that nobody used for so long is closed. AgentGym's clients keep one through their training pauses."""
    start_seconds: float = 60.0
    """How long a world may take to be built or to start a task."""
    step_seconds: float = 30.0
    """How long a world may take for one step, or any other call."""
    max_hung: int = 64
    """So many worlds may hang at once before the server takes no more sessions."""
    max_snapshots: int = 4096
    """Over all sessions; the oldest is forgotten first."""


@dataclass(frozen=True)
class Progress:
    """Where an episode stands: after `turn` steps, the last of which was `action` and led to `result`."""

    observation: Observation
    state_key: str | None
    turn: int = 0
    action: str = ""
    result: StepResult | None = None

    @property
    def done(self) -> bool:
        return self.result is not None and self.result.done


class Session:
    """One world on its own thread. Only `Sessions` makes one and lends it out, to one user at a time."""

    def __init__(self, limits: Limits) -> None:
        self.id = secrets.randbits(53)
        self.lock = asyncio.Lock()
        self.thread = WorldThread()
        self.last_used = time.monotonic()
        self.ended = False
        self.hung = False
        self._limits = limits
        self._world: Environment | None = None
        self._progress: Progress | None = None
        self.instructions = ""
        """What the world told at the last reset."""

    async def build(self, world: type[Environment], options: Mapping[str, Any]) -> None:
        self._world = await self._call(lambda: world(**options), self._limits.start_seconds)

    async def reset(self, task: Task) -> Progress:
        """Start the task."""
        world = self.world

        def start() -> tuple[Progress, str]:
            observation = world.reset(task)
            return Progress(observation, world.state_key()), world.instructions()

        self._progress = None
        self._progress, self.instructions = await self._call(start, self._limits.start_seconds)
        return self.progress

    async def step(self, action: str, turn: int | None = None) -> tuple[Progress, StepResult]:
        """Act once. The turn before, repeated, is answered from memory; any other turn but the next is refused."""
        before = self.progress
        if turn is not None:
            if before.result is not None and turn == before.turn and action == before.action:
                return before, before.result
            if turn != before.turn + 1:
                raise out_of_order(f"turn {turn} was sent, but the next turn is {before.turn + 1}.")
        if before.done:
            raise out_of_order("the episode is over; reset the session to start another.")
        world = self.world

        def act() -> tuple[Progress, StepResult]:
            result = world.step(action)
            return Progress(result.observation, world.state_key(), before.turn + 1, action, result), result

        progress, result = await self._call(act, self._limits.step_seconds)
        self._progress = progress
        return progress, result

    async def ask(self, question: Callable[[Environment], T]) -> T:
        """What the world answers, without acting."""
        world = self.world
        return await self._call(lambda: question(world), self._limits.step_seconds)

    async def restore(self, snapshot: Any, progress: Progress) -> None:
        await self.ask(lambda world: world.restore(snapshot))
        self._progress = progress

    async def close(self) -> None:
        """Close the world and end its thread; a world that hangs in it is left behind."""
        if self.ended:
            return
        try:
            if self._world is not None:
                await self._call(self._world.close, self._limits.step_seconds)
        finally:
            if not self.ended:
                self.ended = True
                self.thread.end()

    @property
    def world(self) -> Environment:
        assert self._world is not None, "a session is lent out only after its world is built"
        return self._world

    @property
    def progress(self) -> Progress:
        if self._progress is None:
            raise out_of_order("no task was started; reset the session first.")
        return self._progress

    async def _call(self, function: Callable[[], T], seconds: float) -> T:
        try:
            return await self.thread.call(function, seconds)
        except WorldHung as error:
            self.hung = True
            self._fail()
            raise Problem(504, "The world hangs", f"{error}; the session has ended.") from error
        except WorldCrashed as error:
            self._fail()
            raise Problem(500, "The world failed", f"{error}; the session has ended.") from error
        except NoRoom as error:
            raise busy(str(error)) from error
        except UserError as error:
            raise Problem(422, "The world refuses", f"{error.what}. {error.hint}".strip()) from error
        except NotImplementedError as error:
            raise Problem(501, "The world cannot do that", str(error)) from error
        except EpisodeOver as error:
            raise out_of_order(str(error)) from error

    def _fail(self) -> None:
        self.ended = True
        self.thread.end(self._world.close if self._world is not None else None)


class Sessions:
    """All sessions of a server, and the snapshots taken in them."""

    def __init__(self, world: type[Environment], options: Mapping[str, Any], limits: Limits) -> None:
        self.world = world
        self.limits = limits
        self._options = dict(options)
        self._sessions: dict[int, Session] = {}
        self._snapshots: dict[int, tuple[Any, Progress]] = {}
        self._hung_threads: list[WorldThread] = []

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def hung(self) -> int:
        """Threads of ended sessions that a hung world still holds."""
        self._hung_threads = [thread for thread in self._hung_threads if thread.alive]
        return len(self._hung_threads)

    async def open(self, options: Mapping[str, Any] | None = None, task: Task | None = None) -> Session:
        """A new session, with the task started if one is given. `options` go before the server's own."""
        options = options or {}
        if len(self._sessions) >= self.limits.max_sessions:
            raise busy(f"{len(self._sessions)} sessions are open, and no more are allowed.")
        if self.hung >= self.limits.max_hung:
            raise busy(f"{self.hung} worlds hang; the server takes no more sessions until some of them end.")
        refusal = self.refusal(options)
        if refusal:
            raise Problem(422, "The world refuses", refusal)
        session = Session(self.limits)
        self._sessions[session.id] = session
        async with self.using(session.id):
            try:
                await session.build(self.world, {**self._options, **options})
                if task is not None:
                    await session.reset(task)
            except Problem:
                await session.close()
                raise
        return session

    def refusal(self, options: Mapping[str, Any]) -> str | None:
        """Why the world does not take these options on top of the server's own, or None if it does."""
        return refused_options(self.world, {**self._options, **options})

    @asynccontextmanager
    async def using(self, session_id: int) -> AsyncIterator[Session]:
        """Lend a session to one user; others wait."""
        session = self._sessions.get(session_id)
        if session is None:
            raise _unknown(session_id)
        async with session.lock:
            if session.ended:
                raise _unknown(session_id)
            try:
                yield session
            finally:
                session.last_used = time.monotonic()
                if session.ended:
                    self._forget(session)

    async def close(self, session_id: int) -> None:
        async with self.using(session_id) as session:
            await session.close()

    async def snapshot(self, session: Session) -> int:
        """Keep the session's present state under a new id."""
        progress = session.progress
        snapshot = await session.ask(lambda world: world.snapshot())
        snapshot_id = secrets.randbits(53)
        self._snapshots[snapshot_id] = (snapshot, progress)
        while len(self._snapshots) > self.limits.max_snapshots:
            del self._snapshots[next(iter(self._snapshots))]
        return snapshot_id

    async def restore(self, session: Session, snapshot_id: int) -> Progress:
        """Bring the session to a state that was kept, in this or another session."""
        if snapshot_id not in self._snapshots:
            raise Problem(404, "No such snapshot", f"there is no snapshot {snapshot_id}, or it is no longer kept.")
        snapshot, progress = self._snapshots[snapshot_id]
        await session.restore(snapshot, progress)
        return progress

    async def sweep_for_ever(self) -> None:
        """Close the sessions that nobody uses any more."""
        while True:
            await asyncio.sleep(min(self.limits.idle_seconds / 4, 5.0))
            too_old = time.monotonic() - self.limits.idle_seconds
            await self._close_all([s for s in self._sessions.values() if s.last_used < too_old and not s.lock.locked()])

    async def shut_down(self, seconds: float) -> None:
        """Close everything within so many seconds; what hangs is left to the end of the process."""
        await asyncio.wait([asyncio.ensure_future(self._close_all(list(self._sessions.values())))], timeout=seconds)

    async def _close_all(self, sessions: list[Session]) -> None:
        await asyncio.gather(*(self.close(session.id) for session in sessions), return_exceptions=True)

    def _forget(self, session: Session) -> None:
        del self._sessions[session.id]
        if session.hung:
            self._hung_threads.append(session.thread)


def refused_options(world: type[Environment], options: Mapping[str, Any]) -> str | None:
    """Why the world's constructor does not take these options, or None if it does."""
    try:
        inspect.signature(world).bind(**options)
    except TypeError as error:
        return f"{world.name} does not take the options {sorted(options)}: {error}."
    return None


def _unknown(session_id: int) -> Problem:
    return Problem(404, "No such session", f"there is no session {session_id}: it never was, was closed, or expired.")
