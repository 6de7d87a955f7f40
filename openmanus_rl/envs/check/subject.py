"""What is checked: a world behind a server, its class where that is at hand, and ways to play it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from openmanus_rl.envs.base import ActionGrammar, Environment, Split, StepResult, Task
from openmanus_rl.envs.client import EnvFailure, Handle, NativeClient
from openmanus_rl.envs.items import pick, seeded

T = TypeVar("T")

MAX_TURNS = 500
"""No episode of a check is longer."""


class CheckFailed(Exception):
    """The world breaks a promise; the message says which and where."""


class NotChecked(Exception):
    """The check cannot tell; the message says why."""


@dataclass(frozen=True)
class Subject:
    """A world behind a server. `world` and `options` are known where the check started the server itself."""

    name: str
    """By which tasks are sent, and by which another process finds the world."""
    url: str
    client: NativeClient
    forms: Sequence[str]
    """An action of each form, as the agent is shown it."""
    instructions: str
    success_rule: str
    score_range: tuple[float, float]
    items: Mapping[Split, Sequence[str]]
    world: type[Environment] | None
    options: Mapping[str, Any]
    grammar: ActionGrammar | None
    """That of a world with these options, where its class is at hand."""
    seconds: float
    """How long one call to the world may take."""
    expert_seconds: float
    """How long the expert may think."""
    sessions_at_once: int

    @property
    def item_ids(self) -> list[str]:
        """Some tasks of all splits."""
        return [item_id for split in self.items.values() for item_id in split[:4]]

    def known_world(self) -> type[Environment]:
        if self.world is None:
            raise NotChecked("needs the world's own class, and a server does not give it away")
        return self.world

    @cached_property
    def room(self) -> asyncio.Semaphore:
        """For as many sessions as the world plays at once."""
        return asyncio.Semaphore(self.sessions_at_once)

    def known_grammar(self) -> ActionGrammar:
        self.known_world()
        assert self.grammar is not None
        return self.grammar

    async def start(self, item_id: str) -> Handle:
        return await self.client.start(Task(self.name, item_id))

    async def expert_action(self, handle: Handle) -> str | None:
        return await self.client.expert_action(handle, self.expert_seconds)

    async def knows_an_expert(self) -> bool:
        handle = await self.start(self.item_ids[0])
        try:
            return await self.expert_action(handle) is not None
        finally:
            await self.client.close(handle)

    async def script(self, item_id: str, turn: int, handle: Handle) -> str:
        """An action that depends on the task and its state only: mostly the expert's, else one of the forms."""
        chance = seeded(f"check {item_id} {turn}")
        if chance.random() < 0.7:
            action = await self.expert_action(handle)
            if action is not None:
                return action
        return pick(self.forms, chance.random())


@dataclass(frozen=True)
class Played:
    """One episode as it was seen."""

    item_id: str
    seen: list[Any]
    """First observation and state key, then for every step action, observation, reward, end, success and state key."""
    results: list[StepResult]

    @property
    def total(self) -> float:
        return sum(result.reward for result in self.results)

    @property
    def success(self) -> bool:
        return bool(self.results) and self.results[-1].success


Choose = Callable[[str, int, Handle], Awaitable[str]]


async def play(subject: Subject, item_id: str, choose: Choose, turns: int = MAX_TURNS) -> Played:
    """Play a task to its end, or for so many turns, in a session of its own, when there is room for one."""
    async with subject.room:
        return await _play(subject, item_id, choose, turns)


async def _play(subject: Subject, item_id: str, choose: Choose, turns: int) -> Played:
    handle = await subject.start(item_id)
    try:
        seen: list[Any] = [handle.observation.text, handle.state_key, handle.instructions]
        results = []
        for turn in range(turns):
            action = await choose(item_id, turn, handle)
            result, state_key = await subject.client.step(handle, action)
            results.append(result)
            seen.append((action, result.observation.text, result.reward, result.done, result.success, state_key))
            if result.done:
                break
        return Played(item_id, seen, results)
    finally:
        await subject.client.close(handle)


async def gathered(calls: Sequence[Awaitable[T]]) -> list[T]:
    """All at once; the first failure is the check's."""
    return list(await asyncio.gather(*calls))


async def aside(function: Callable[[], T]) -> T:
    """The function's result, from a thread that keeps nothing waiting if it never ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(value)  # type: ignore[arg-type]

    def work() -> None:
        try:
            value = function()
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, value, None)

    threading.Thread(target=work, daemon=True).start()
    return await future


async def answered(what: str, call: Awaitable[T]) -> T:
    """The answer; a failure of the world breaks the promise that `what` is answered."""
    try:
        return await call
    except EnvFailure as error:
        raise CheckFailed(f"{what} is not answered: {error}") from error


def first_difference(one: Sequence[Any], other: Sequence[Any]) -> str:
    """Where two accounts of an episode part, in words."""
    for place, (here, there) in enumerate(zip(one, other, strict=False)):
        if here != there:
            where = "the start" if place < 3 else f"turn {place - 2}"
            return f"at {where}, {_short(here)} against {_short(there)}"
    return f"one ends after {len(one) - 3} turns, the other after {len(other) - 3}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:157]}…"
