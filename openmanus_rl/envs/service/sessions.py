"""Sessions: who plays which world, for how long, and how far the episode has come.

A session is one world where that runs: on a thread of its own, in a process of its own, or, if its steps are quick and
the server allows it, on the event loop (`Environment.isolation`). It is used by one request at a time, expires when
nobody uses it, counts against a limit, and ends as failed when its world hangs or crashes, without harm to any other
session.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from types import TracebackType
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment, EpisodeOver, Isolation, NoRoom, Observation, StepResult, Task
from openmanus_rl.envs.options import default_options, refused_options, session_options
from openmanus_rl.envs.service.metrics import Ending, Latency, Metrics
from openmanus_rl.envs.service.problems import Problem, busy, out_of_order
from openmanus_rl.envs.service.runner import Runner, WorldCrashed, WorldHung, act, start_task
from openmanus_rl.envs.service.world_inline import InlineWorld, Pace
from openmanus_rl.envs.service.world_process import Nursery, WorldProcess
from openmanus_rl.envs.service.world_thread import WorldThread
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


@dataclass(slots=True)
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
    """One world and how far its episode has come. Only `Sessions` makes one and lends it out.

    It is used within `async with`, by one user at a time; others wait. Whoever used it when it ended has it forgotten.
    """

    def __init__(self, runner: Runner, limits: Limits, metrics: Metrics, forget: Callable[["Session"], None]) -> None:
        self.id = secrets.randbits(53)
        self.runner = runner
        self.last_used = time.monotonic()
        self.ended: Ending | None = None
        self._lock = asyncio.Lock()
        self._built = False
        self._limits = limits
        self._metrics = metrics
        self._forget = forget
        self._progress: Progress | None = None
        self.instructions = ""
        """What the world told at the last reset."""

    async def __aenter__(self) -> "Session":
        await self._lock.acquire()
        if self.ended:
            self._lock.release()
            raise _unknown(self.id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.last_used = time.monotonic()
        if self.ended:
            self._forget(self)
        self._lock.release()

    @property
    def is_used(self) -> bool:
        return self._lock.locked()

    async def build(self, world: type[Environment], options: Mapping[str, Any]) -> None:
        await self._answer(self.runner.build(world, options, self._limits.start_seconds))
        self._built = True

    async def reset(self, task: Task) -> Progress:
        """Start the task."""
        self._progress = None
        started = self.runner.start(partial(start_task, task), self._limits.start_seconds)
        observation, state_key, self.instructions = await self._answer(started, self._metrics.starts)
        self._progress = Progress(observation, state_key)
        return self._progress

    async def step(self, action: str, turn: int | None = None) -> tuple[Progress, StepResult]:
        """Act once. The turn before, repeated, is answered from memory; any other turn but the next is refused.

        Without a turn, as AgentGym's clients step, the state has no key either.
        """
        before = self.progress
        if turn is not None:
            if before.result is not None and turn == before.turn and action == before.action:
                return before, before.result
            if turn != before.turn + 1:
                raise out_of_order(f"turn {turn} was sent, but the next turn is {before.turn + 1}.")
        if before.done:
            raise out_of_order("the episode is over; reset the session to start another.")
        seconds, latency = self._limits.step_seconds, self._metrics.steps
        state_key = None
        if turn is None:
            result = await self._answer(self.runner.step(methodcaller("step", action), seconds), latency)
        else:
            result, state_key = await self._answer(self.runner.step(partial(act, action), seconds), latency)
        self._progress = Progress(result.observation, state_key, before.turn + 1, action, result)
        return self._progress, result

    async def ask(self, question: Callable[[Environment], T], seconds: float | None = None) -> T:
        """What the world answers, without acting, by default within the time for a step.

        The question may have to be picklable: no lambda.
        """
        return await self._answer(self.runner.call(question, seconds or self._limits.step_seconds))

    async def restore(self, snapshot: Any, progress: Progress) -> None:
        await self.ask(methodcaller("restore", snapshot))
        self._progress = progress

    async def close(self, how: Ending = "closed") -> None:
        """Close the world and what it runs on; a world that hangs in it is left behind."""
        if self.ended:
            return
        try:
            if self._built:
                await self.ask(methodcaller("close"))
        finally:
            if not self.ended:
                self.ended = how
                self.runner.end(close_world=False)

    @property
    def progress(self) -> Progress:
        if self._progress is None:
            raise out_of_order("no task was started; reset the session first.")
        return self._progress

    async def _answer(self, call: Awaitable[T], latency: Latency | None = None) -> T:
        """The world's answer, or the problem it is for the caller; a world that hung or crashed ends the session."""
        began = time.perf_counter()
        try:
            return await call
        except WorldHung as error:
            self._fail()
            self._metrics.failures["hung"] += 1
            raise Problem(504, "The world hangs", f"{error}; the session has ended.") from error
        except WorldCrashed as error:
            self._fail()
            self._metrics.failures["crashed"] += 1
            raise Problem(500, "The world failed", f"{error}; the session has ended.") from error
        except NoRoom as error:
            self._metrics.failures["full"] += 1
            raise busy(str(error)) from error
        except UserError as error:
            raise Problem(422, "The world refuses", f"{error.what}. {error.hint}".strip()) from error
        except NotImplementedError as error:
            raise Problem(501, "The world cannot do that", str(error)) from error
        except EpisodeOver as error:
            raise out_of_order(str(error)) from error
        except (OSError, RuntimeError) as error:  # the server's own: whatever else a world raises is a `WorldCrashed`
            self._metrics.failures["full"] += 1
            raise busy(f"this machine has no room for another world: {error}.") from error
        finally:
            if latency is not None:
                latency.observe(time.perf_counter() - began)

    def _fail(self) -> None:
        self.ended = "failed"
        self.runner.end(close_world=True)


class Sessions:
    """All sessions of a server, and the snapshots taken in them."""

    def __init__(
        self,
        world: type[Environment],
        options: Mapping[str, Any],
        limits: Limits,
        *,
        source: str | None = None,
        isolation: Isolation | None = None,
        inline: bool = False,
    ) -> None:
        """`source` is by what another process finds the world; `isolation` is where it runs with these options, if not
        where its class says; `inline` allows quick steps on the event loop."""
        self.world = world
        self.limits = limits
        self.metrics = Metrics()
        self._options = dict(options)
        self._isolation = isolation or world.isolation
        self._inline = inline
        self._nursery = Nursery(source or f"{world.__module__}:{world.__qualname__}", options)
        self._sessions: dict[int, Session] = {}
        self._snapshots: dict[int, tuple[Any, Progress]] = {}
        self._held_up: list[Runner] = []
        self._pace = Pace()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def hung(self) -> int:
        """Threads of ended sessions that a hung world still holds."""
        self._held_up = [runner for runner in self._held_up if runner.held_up]
        return len(self._held_up)

    async def open(self, options: Mapping[str, Any] | None = None, task: Task | None = None) -> Session:
        """A new session, with the task started if one is given. `options` go before the server's own, unchecked."""
        options = options or {}
        if len(self._sessions) >= self.limits.max_sessions:
            self.metrics.failures["full"] += 1
            raise busy(f"{len(self._sessions)} sessions are open, and no more are allowed.")
        if self.hung >= self.limits.max_hung:
            self.metrics.failures["full"] += 1
            raise busy(f"{self.hung} worlds hang; the server takes no more sessions until some of them end.")
        session = Session(self._runner(), self.limits, self.metrics, self._forget)
        self._sessions[session.id] = session
        self.metrics.opened += 1
        async with self.using(session.id):
            try:
                await session.build(self.world, {**self._options, **options})
                if task is not None:
                    await session.reset(task)
            except BaseException:
                await session.close()
                raise
        return session

    def refusal(self, options: Mapping[str, Any]) -> str | None:
        """Why the world does not take these options on top of the server's own, or None if it does."""
        return refused_options(self.world, {**self._options, **options})

    def callers_choice(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a caller sets beyond what holds here anyway; a `Problem` if it may not, or cannot."""
        here = {**default_options(self.world), **self._options}
        chosen = {name: value for name, value in options.items() if name not in here or here[name] != value}
        refusal = self.refusal(chosen)
        if refusal:
            raise Problem(422, "The world refuses", refusal)
        allowed = session_options(self.world)
        if not chosen.keys() <= allowed:
            names = ", ".join(sorted(chosen.keys() - allowed))
            detail = f"{names}: only who starts the server sets this. A session may set {sorted(allowed)}."
            raise Problem(422, "Not yours to set", detail)
        return chosen

    def using(self, session_id: int) -> Session:
        """A session to use within `async with`."""
        session = self._sessions.get(session_id)
        if session is None:
            raise _unknown(session_id)
        return session

    async def close(self, session_id: int, how: Ending = "closed") -> bool:
        """Whether there was such a session; closing what is not there is fine."""
        try:
            async with self.using(session_id) as session:
                await session.close(how)
        except NoSuchSession:
            return False
        return True

    async def snapshot(self, session: Session) -> int:
        """Keep the session's present state under a new id."""
        progress = session.progress
        snapshot = await session.ask(methodcaller("snapshot"))
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
            await self._close_unused()

    async def shut_down(self, seconds: float) -> None:
        """Close everything within so many seconds; what hangs is left to the end of the process."""
        closing = asyncio.ensure_future(self._close_all(list(self._sessions.values()), "closed"))
        await asyncio.wait([closing], timeout=seconds)
        await asyncio.to_thread(self._nursery.close)

    async def _close_unused(self) -> None:
        too_old = time.monotonic() - self.limits.idle_seconds
        unused = [s for s in self._sessions.values() if s.last_used < too_old and not s.is_used]
        await self._close_all(unused, "expired")

    async def _close_all(self, sessions: list[Session], how: Ending) -> None:
        await asyncio.gather(*(self.close(session.id, how) for session in sessions), return_exceptions=True)

    def _forget(self, session: Session) -> None:
        assert session.ended is not None
        del self._sessions[session.id]
        self.metrics.endings[session.ended] += 1
        if session.ended == "failed":
            self._held_up.append(session.runner)

    def _runner(self) -> Runner:
        if self._isolation == "process":
            return WorldProcess(self._nursery)
        if self._isolation == "inline" and self._inline:
            return InlineWorld(self._pace)
        return WorldThread()


class NoSuchSession(Problem):
    """It never was, was closed, or expired."""


def _unknown(session_id: int) -> NoSuchSession:
    return NoSuchSession(
        404, "No such session", f"there is no session {session_id}: it never was, was closed, or expired."
    )
