"""`POST /v1/step_batch`: the steps of many sessions in one request.

The answer is a stream with a line of JSON for each step, in the order in which they end: a slow world holds up its own
line only. Each step carries its turn, so a batch whose answer got lost may be sent again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from openmanus_rl.envs.service.problems import Problem
from openmanus_rl.envs.service.wire import encode, problem_body

MAX_STEPS = 1024


class BatchStep(BaseModel):
    """One session's step."""

    model_config = ConfigDict(extra="forbid", strict=True)

    session_id: int
    action: str
    turn: int = Field(ge=1)


class BatchBody(BaseModel):
    """What is sent."""

    model_config = ConfigDict(extra="forbid", strict=True)

    steps: list[BatchStep] = Field(max_length=MAX_STEPS)


StepOne = Callable[[int, str, int], Awaitable[Any]]


async def answer_lines(steps: Sequence[BatchStep], step_one: StepOne) -> AsyncIterator[bytes]:
    """The lines, as steps end: `{"index", "status", "answer"}`, where a refusal's answer is its problem detail.

    A caller who goes away does not stop the steps under way; their answers are kept for when it asks again.
    """
    running = {asyncio.create_task(_line(index, step, step_one)) for index, step in enumerate(steps)}
    while running:
        ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        yield b"".join(task.result() for task in ended)


async def _line(index: int, step: BatchStep, step_one: StepOne) -> bytes:
    try:
        return (
            encode({"index": index, "status": 200, "answer": await step_one(step.session_id, step.action, step.turn)})
            + b"\n"
        )
    except Problem as problem:
        return encode({"index": index, "status": problem.status, "answer": problem_body(problem)}) + b"\n"
