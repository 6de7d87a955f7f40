"""The client of a real AgentGym server. A step there has no turn number: one that may have arrived is never resent."""

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from openmanus_rl.envs.access import token_from_environment
from openmanus_rl.envs.base import Observation, StepResult, Task
from openmanus_rl.envs.client.base import EnvFailure, EnvironmentClient, EnvTimeout, Handle, Patience
from openmanus_rl.envs.client.descriptors import DESCRIPTORS, Descriptor
from openmanus_rl.envs.client.servers import Full, Servers
from openmanus_rl.envs.client.transport import NoAnswer, NotSent, Reply, TooLate, Transport
from openmanus_rl.errors import UserError, did_you_mean

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 2.0
"""AgentGym's servers close an idle connection after five seconds; a step must not meet that."""


class AgentGymClient(EnvironmentClient):
    """Plays one family's servers. A URL may end with the family's prefix, as AgentGym's own clients give it."""

    def __init__(
        self,
        env: str,
        urls: Sequence[str],
        *,
        patience: Patience | None = None,
        token: str | None = None,
    ) -> None:
        if env not in DESCRIPTORS:
            raise UserError(f"there is no AgentGym environment called {env!r}. {did_you_mean(env, DESCRIPTORS)}")
        self._family: Descriptor = DESCRIPTORS[env]
        self._patience = patience or Patience()
        self._servers = Servers([url.rstrip("/").removesuffix(self._family.prefix) for url in urls])
        self._transport = Transport(keep_alive_seconds=KEEP_ALIVE_SECONDS, token=token or token_from_environment())

    async def start(self, task: Task) -> Handle:
        family = self._family
        number = _number(task)

        async def attempt(url: str, seconds: float) -> Handle:
            deadline = time.monotonic() + seconds
            created = await self._post(url, "create", family.creation(number), seconds)
            session: int = _value(created, family.created_id_key, int, f"{url}{family.prefix}/create")
            body = {family.id_key: session, family.reset_key: number, **family.reset_extras}
            try:
                answer = await self._post(url, "reset", body, deadline - time.monotonic())
                seen = self._seen(answer, family.first_observation_keys, f"{url}{family.prefix}/reset")
            except (NoAnswer, EnvFailure, Full):
                await self._close(url, session)
                raise
            return Handle(task, url, session, Observation(seen), None, family.instructions)

        return await self._servers.start(attempt, self._patience)

    async def step(self, handle: Handle, action: str) -> tuple[StepResult, str | None]:
        family = self._family
        where = f"{handle.url}{family.prefix}/step"
        if handle.done:
            raise EnvFailure(f"{where}: the episode is over, and no further step was sent")
        body = {family.id_key: handle.session, "action": family.action_form.format(action)}
        answer = await self._step_once_connected(handle, body, where)
        reward = float(_value(answer, family.reward_key, (int, float), where))
        if family.reward_is_total:
            reward -= handle.total
        terminated = bool(_value(answer, family.done_key, (bool, int), where))
        truncated = bool(family.truncated_key and _value(answer, family.truncated_key, (bool, int), where))
        observation = Observation(self._seen(answer, (family.observation_key,), where))
        handle.turn += 1
        handle.total += reward
        handle.done = terminated or truncated
        success = handle.done and handle.total >= family.success_at
        return StepResult(observation, reward, terminated, truncated and not terminated, success), None

    async def close(self, handle: Handle) -> None:
        if handle.closed:
            return
        handle.closed = True
        self._servers.release(handle.url)
        await self._close(handle.url, handle.session)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _seen(self, answer: Any, keys: Sequence[str | int | None], where: str) -> str:
        """What the agent is shown of an answer."""
        parts = [_value(answer, key, str, where) for key in keys]
        if self._family.actions_key is not None:
            actions = _value(answer, self._family.actions_key, list, where)
            parts.append(f"Available actions: {', '.join(map(str, actions))}")
        return "\n".join(parts)

    async def _step_once_connected(self, handle: Handle, body: Mapping[str, Any], where: str) -> Any:
        """Try again only where no connection came about: then the world cannot have acted."""
        deadline = time.monotonic() + self._patience.step_seconds
        tries = 0
        while True:
            tries += 1
            try:
                return await self._post(handle.url, "step", body, deadline - time.monotonic())
            except NotSent as error:
                if tries >= self._patience.tries:
                    raise EnvFailure(f"{where}: {error} ({tries} tries)") from error
                await asyncio.sleep(max(0.0, min(self._patience.pause(tries), deadline - time.monotonic())))
            except TooLate as error:
                raise EnvTimeout(f"{where}: {error} ({tries} tries)") from error
            except (NoAnswer, Full) as error:
                raise EnvFailure(f"{where}: {error} ({tries} tries)") from error

    async def _close(self, url: str, session: int) -> None:
        if not self._family.has_close:
            return
        try:
            await self._post(url, "close", {self._family.id_key: session}, self._patience.close_seconds)
        except (NoAnswer, EnvFailure, Full) as error:
            log.warning("session %s was not closed: %s", session, error)

    async def _post(self, url: str, verb: str, body: Mapping[str, Any] | None, seconds: float) -> Any:
        """The answer's content; a status but 200 or an `error` in it is a failure."""
        where = f"{url}{self._family.prefix}/{verb}"
        reply: Reply = await self._transport.request("POST", where, body, seconds)
        if reply.status in (429, 503):
            raise Full(reply.complaint, reply.retry_after or 1.0)
        if reply.status != 200 or (isinstance(reply.content, dict) and "error" in reply.content):
            raise EnvFailure(f"{where}: {reply.complaint}")
        return reply.content


def _number(task: Task) -> int:
    match = re.search(r"_([0-9]+)$", task.item_id)
    if match is None:
        raise UserError(
            f"{task.item_id!r} names no task of an AgentGym server.", f"There, an item id is {task.env}_<n>."
        )
    return int(match[1])


def _value(answer: Any, key: str | int | None, kind: type | tuple[type, ...], where: str) -> Any:
    """The value at a key, or at a place of a list, or the answer itself."""
    value = answer
    if isinstance(key, str):
        value = answer.get(key) if isinstance(answer, dict) else None
    elif isinstance(key, int):
        value = answer[key] if isinstance(answer, list) and len(answer) > key else None
    if not isinstance(value, kind):
        raise EnvFailure(f"{where}: the answer has no proper {key!r}: {str(answer)[:200]}")
    return value
