"""Steps of many sessions in one HTTP call: what one server is asked within one turn of the event loop goes together.

A lone step goes alone. The answers come back as they are ready, so a slow world keeps only its own session waiting. A
step that got no answer is the caller's to ask for again: it carries its turn number, so that is safe.
"""

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from openmanus_rl.envs.client.transport import NoAnswer, Reply, TooLate, Transport

MAX_STEPS = 256
MAX_CHARACTERS = 80_000
"""Of all actions in a batch: as JSON has twelve bytes for some, its body stays within the MiB that a server takes."""


@dataclass(frozen=True)
class _Waiting:
    session: int
    body: dict[str, Any]
    seconds: float
    reply: "asyncio.Future[Reply]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, reply: Reply) -> None:
        if not self.reply.done():  # its waiter may be gone
            self.reply.set_result(reply)

    def fail(self, error: BaseException) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class StepBatcher:
    """Collects steps per server and sends them together; a server without `/v1/step_batch` gets them one by one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._collected: dict[str, list[_Waiting]] = {}
        self._without: set[str] = set()
        self._sending: set[asyncio.Task[None]] = set()

    async def step(self, url: str, session: int, body: dict[str, Any], seconds: float) -> Reply:
        """The server's reply to one step; `NoAnswer` if there is none within so many seconds."""
        if seconds <= 0:
            raise TooLate("no time was left for it")
        if url in self._without:
            return await self._alone(url, session, body, seconds)
        if url not in self._collected:
            self._collected[url] = []
            asyncio.get_running_loop().call_soon(self._send, url)
        waiting = _Waiting(session, body, seconds)
        self._collected[url].append(waiting)
        try:
            async with asyncio.timeout(seconds):
                return await waiting.reply
        except TimeoutError as error:
            raise TooLate(f"no answer within {seconds:.3g} s") from error

    async def aclose(self) -> None:
        """Give up what is under way."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    def _send(self, url: str) -> None:
        for batch in _split(self._collected.pop(url)):
            task = asyncio.get_running_loop().create_task(self._send_batch(url, batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_batch(self, url: str, batch: list[_Waiting]) -> None:
        try:
            if len(batch) > 1 and url not in self._without and await self._together(url, batch):
                return
            await asyncio.gather(*(self._settle_alone(url, waiting) for waiting in batch))
        except asyncio.CancelledError:
            _fail_all(batch, NoAnswer("the client was closed"))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for the answer must know
            _fail_all(batch, error)

    async def _together(self, url: str, batch: list[_Waiting]) -> bool:
        """Whether the server takes batches; if so, every step is settled."""
        steps = [{"session_id": waiting.session, **waiting.body} for waiting in batch]
        seconds = max(waiting.seconds for waiting in batch)
        async with aclosing(self._transport.lines(f"{url}/v1/step_batch", {"steps": steps}, seconds)) as lines:
            async for line in lines:
                if not isinstance(line, Reply):
                    index, reply = _parsed(line, len(batch))
                    batch[index].settle(reply)
                elif line.status in (404, 405):
                    self._without.add(url)
                    return False
                else:
                    for waiting in batch:
                        waiting.settle(line)
        _fail_all(batch, NoAnswer("the answer to a batch of steps was cut short"))
        return True

    async def _settle_alone(self, url: str, waiting: _Waiting) -> None:
        try:
            waiting.settle(await self._alone(url, waiting.session, waiting.body, waiting.seconds))
        except NoAnswer as error:
            waiting.fail(error)

    async def _alone(self, url: str, session: int, body: dict[str, Any], seconds: float) -> Reply:
        return await self._transport.request("POST", f"{url}/v1/sessions/{session}/step", body, seconds)


def _split(steps: list[_Waiting]) -> list[list[_Waiting]]:
    batches: list[list[_Waiting]] = [[]]
    characters = 0
    for waiting in steps:
        length = len(waiting.body["action"])
        if batches[-1] and (len(batches[-1]) >= MAX_STEPS or characters + length > MAX_CHARACTERS):
            batches.append([])
            characters = 0
        batches[-1].append(waiting)
        characters += length
    return batches


def _fail_all(batch: list[_Waiting], error: BaseException) -> None:
    """For those that have no answer yet."""
    for waiting in batch:
        waiting.fail(error)


def _parsed(line: bytes, steps: int) -> tuple[int, Reply]:
    """Which step a line answers, and how."""
    try:
        answer = json.loads(line)
        index, reply = answer["index"], Reply(answer["status"], answer["answer"])
    except (ValueError, KeyError, TypeError) as error:
        raise NoAnswer(f"the answer to a batch of steps is not one: {line[:100]!r}") from error
    if index not in range(steps):
        raise NoAnswer(f"the answer to a batch of {steps} steps tells of step {index}")
    return index, reply
