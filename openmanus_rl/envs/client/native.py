"""The client of our own service: one call to start, one per step, one to close; steps of one moment share a call.

A step carries its turn number, and the server answers a repeated turn from memory: a lost answer is asked for again
without acting twice.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from openmanus_rl.envs.access import token_from_environment
from openmanus_rl.envs.base import Observation, StepResult, Task
from openmanus_rl.envs.client.base import EnvFailure, EnvironmentClient, EnvTimeout, Handle, Patience
from openmanus_rl.envs.client.batching import StepBatcher
from openmanus_rl.envs.client.servers import Full, Servers
from openmanus_rl.envs.client.transport import NoAnswer, Reply, TooLate, Transport

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 60.0
"""Shorter than the server's, so that the server never closes a connection under a request."""


class NativeClient(EnvironmentClient):
    """Plays on any of several servers; a session stays where it started. `token` is the environment's by default."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        options: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
        token: str | None = None,
    ) -> None:
        self._servers = Servers(urls)
        self._options = dict(options or {})
        self._patience = patience or Patience()
        self._transport = Transport(keep_alive_seconds=KEEP_ALIVE_SECONDS, token=token or token_from_environment())
        self._batcher = StepBatcher(self._transport)

    async def start(self, task: Task) -> Handle:
        return await self._start(task)

    async def fork(self, handle: Handle) -> Handle:
        """A session on the same server, where the snapshot is."""
        snapshot_id = await self.snapshot(handle)
        copy = await self._start(handle.task, handle.url)
        try:
            await self.restore(copy, snapshot_id)
        except BaseException:
            await self.close(copy)
            raise
        copy.total = handle.total
        return copy

    async def _start(self, task: Task, at: str | None = None) -> Handle:
        body: dict[str, Any] = {"task": _on_the_wire(task)}
        if self._options:
            body["options"] = self._options

        async def attempt(url: str, seconds: float) -> Handle:
            reply = await self._transport.request("POST", f"{url}/v1/sessions", body, seconds)
            if reply.status in (429, 503):
                raise Full(reply.complaint, reply.retry_after or 1.0)
            if reply.status != 201:
                raise _failure(f"{url}/v1/sessions", reply, 1)
            with _expecting(f"{url}/v1/sessions"):
                return _handle(task, url, reply.content)

        return await self._servers.start(attempt, self._patience, at)

    async def step(self, handle: Handle, action: str) -> tuple[StepResult, str | None]:
        body = {"action": action, "turn": handle.turn + 1}
        where = f"{handle.url}/v1/sessions/{handle.session}/step"
        answer = await self._until_answered(
            where, lambda seconds: self._batcher.step(handle.url, handle.session, body, seconds)
        )
        with _expecting(handle.url):
            result, state_key = _result(answer), answer["state_key"]
        handle.turn += 1
        handle.total += result.reward
        handle.done = result.done
        return result, state_key

    async def expert_action(self, handle: Handle, seconds: float | None = None) -> str | None:
        """A good action in the present state, if the world knows one; some think for longer than a step takes."""
        action: str | None = (await self._ask(handle, "GET", "expert_action", seconds=seconds))["action"]
        return action

    async def snapshot(self, handle: Handle) -> int:
        """Keep the present state on the server, for `restore` in a session on the same server."""
        snapshot_id: int = (await self._ask(handle, "POST", "snapshot"))["snapshot_id"]
        return snapshot_id

    async def restore(self, handle: Handle, snapshot_id: int) -> tuple[Observation, str | None]:
        """Go back to a snapshot; the next step is the one after it."""
        answer = await self._ask(handle, "POST", "restore", {"snapshot_id": snapshot_id})
        handle.turn = answer["turn"]
        handle.done = answer["done"]
        return Observation(answer["observation"]), answer["state_key"]

    async def close(self, handle: Handle) -> None:
        if handle.closed:
            return
        handle.closed = True
        self._servers.release(handle.url)
        url = f"{handle.url}/v1/sessions/{handle.session}"
        try:
            reply = await self._transport.request("DELETE", url, None, self._patience.close_seconds)
        except NoAnswer as error:
            log.warning("%s was not closed: %s", url, error)
            return
        if reply.status not in (204, 404):
            log.warning("%s was not closed: %s", url, reply.complaint)

    async def aclose(self) -> None:
        await self._batcher.aclose()
        await self._transport.aclose()

    async def _ask(
        self,
        handle: Handle,
        method: str,
        verb: str,
        body: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
    ) -> Any:
        url = f"{handle.url}/v1/sessions/{handle.session}/{verb}"
        return await self._until_answered(url, lambda left: self._transport.request(method, url, body, left), seconds)

    async def _until_answered(
        self, url: str, ask: Callable[[float], Awaitable[Reply]], seconds: float | None = None
    ) -> Any:
        """Ask until there is an answer or the budget is spent; everything asked here may be repeated."""
        patience = self._patience
        deadline = time.monotonic() + (seconds or patience.step_seconds)
        tries = 0
        while True:
            tries += 1
            try:
                reply = await ask(deadline - time.monotonic())
            except TooLate as error:
                raise EnvTimeout(f"{url}: {error} ({tries} tries)") from error
            except NoAnswer as error:
                if tries >= patience.tries:
                    raise EnvFailure(f"{url}: {error} ({tries} tries)") from error
                await asyncio.sleep(max(0.0, min(patience.pause(tries), deadline - time.monotonic())))
                continue
            if reply.status in (200, 201):
                return reply.content
            raise _failure(url, reply, tries)


def _on_the_wire(task: Task) -> dict[str, Any]:
    return {"env": task.env, "item_id": task.item_id, "seed": task.seed, "extra": dict(task.extra)}


def _handle(task: Task, url: str, answer: Mapping[str, Any]) -> Handle:
    observation = Observation(answer["observation"])
    return Handle(task, url, answer["session_id"], observation, answer["state_key"], answer["instructions"])


def _result(answer: Mapping[str, Any]) -> StepResult:
    return StepResult(
        Observation(answer["observation"]),
        answer["reward"],
        answer["terminated"],
        answer["truncated"],
        answer["success"],
        answer["info"],
    )


@contextmanager
def _expecting(where: str) -> Iterator[None]:
    """An answer that lacks what ours always have comes from some other program."""
    try:
        yield
    except (KeyError, TypeError) as error:
        raise EnvFailure(f"{where}: the answer is not one of an OpenManus-RL environment server") from error


def _failure(url: str, reply: Reply, tries: int) -> EnvFailure:
    kind = EnvTimeout if reply.status == 504 else EnvFailure
    return kind(f"{url}: {reply.complaint} ({tries} tries)")
