"""The native routes under /v1: everything a world offers, over JSON.

A step carries its turn number (1, 2, …). A repeated request is answered from memory, so a retry never acts twice.
"""

import asyncio
from operator import methodcaller
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from openmanus_rl.envs.base import Task
from openmanus_rl.envs.service.batches import BatchBody, answer_lines
from openmanus_rl.envs.service.metrics import descendants_bytes
from openmanus_rl.envs.service.problems import Problem
from openmanus_rl.envs.service.sessions import Progress, Session, Sessions
from openmanus_rl.envs.service.wire import encode, json_response, read_body


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TaskBody(_Body):
    """A task as it travels. Its ground truth does not: that stays where the scores are computed."""

    env: str
    item_id: str
    seed: int = 0
    extra: dict[str, Any] = {}


class OpenBody(_Body):
    env: str | None = None
    options: dict[str, Any] = {}
    task: TaskBody | None = None


class ResetBody(_Body):
    task: TaskBody


class StepBody(_Body):
    action: str
    turn: int = Field(ge=1)


class RestoreBody(_Body):
    snapshot_id: int


B = TypeVar("B", bound=BaseModel)


class NativeRoutes:
    """The handlers of /v1 over a server's sessions."""

    def __init__(self, sessions: Sessions, description: dict[str, Any], spec: str) -> None:
        self._sessions = sessions
        self._description = description
        self._names = {spec, sessions.world.name}

    def routes(self) -> list[Route]:
        one = "/v1/sessions/{session}"
        return [
            Route("/v1/step_batch", self.step_batch, methods=["POST"]),
            Route("/v1/sessions", self.open, methods=["POST"]),
            Route(one, self.close, methods=["DELETE"]),
            Route(f"{one}/reset", self.reset, methods=["POST"]),
            Route(f"{one}/expert_action", self.expert_action, methods=["GET"]),
            Route(f"{one}/snapshot", self.snapshot, methods=["POST"]),
            Route(f"{one}/restore", self.restore, methods=["POST"]),
            Route("/v1/env", self.describe, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    async def open(self, request: Request) -> Response:
        """A new session, and with a task in the body its first observation."""
        body = await _parse(request, OpenBody)
        if body.env is not None:
            self._check_name(body.env)
        task = self._task(body.task) if body.task else None
        session = await self._sessions.open(self._sessions.callers_choice(body.options), task)
        started = _started(session) if task else {}
        return json_response({"session_id": session.id, **started}, 201)

    async def reset(self, request: Request) -> Response:
        task = self._task((await _parse(request, ResetBody)).task)
        async with self._sessions.using(_session_id(request)) as session:
            await session.reset(task)
            return json_response(_started(session))

    async def step(self, path: str, body: bytes) -> bytes:
        """POST /v1/sessions/ID/step, in the lane for steps."""
        step = _validated(body, StepBody)
        return encode(await self._step(_number(path[len("/v1/sessions/") : -len("/step")]), step.action, step.turn))

    async def step_batch(self, request: Request) -> Response:
        body = await _parse(request, BatchBody)
        return StreamingResponse(answer_lines(body.steps, self._step), media_type="application/x-ndjson")

    async def _step(self, session_id: int, action: str, turn: int) -> dict[str, Any]:
        async with self._sessions.using(session_id) as session:
            progress, result = await session.step(action, turn)
        return {
            "observation": result.observation.text,
            "reward": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "success": result.success,
            "info": dict(result.info),
            "state_key": progress.state_key,
        }

    async def close(self, request: Request) -> Response:
        """Closing what is closed already is fine."""
        await self._sessions.close(_session_id(request))
        return Response(status_code=204)

    async def expert_action(self, request: Request) -> Response:
        async with self._sessions.using(_session_id(request)) as session:
            if session.progress.done:
                return json_response({"action": None})
            seconds = self._description["expert_seconds"]
            return json_response({"action": await session.ask(methodcaller("expert_action"), seconds)})

    async def snapshot(self, request: Request) -> Response:
        async with self._sessions.using(_session_id(request)) as session:
            return json_response({"snapshot_id": await self._sessions.snapshot(session)}, 201)

    async def restore(self, request: Request) -> Response:
        body = await _parse(request, RestoreBody)
        async with self._sessions.using(_session_id(request)) as session:
            progress = await self._sessions.restore(session, body.snapshot_id)
        return json_response({**_seen(progress), "turn": progress.turn, "done": progress.done})

    async def describe(self, _: Request) -> Response:
        return json_response(self._description)

    async def health(self, _: Request) -> Response:
        """Whether the server takes sessions, and how many it has."""
        hung = self._sessions.hung
        well = hung < self._sessions.limits.max_hung
        report = {
            "status": "ok" if well else "too many worlds hang",
            "env": self._sessions.world.name,
            "sessions": len(self._sessions),
            "max_sessions": self._sessions.limits.max_sessions,
            "hung_worlds": hung,
        }
        return json_response(report, 200 if well else 503)

    async def metrics(self, _: Request) -> Response:
        """Counters for Prometheus."""
        sessions = self._sessions
        below = await asyncio.to_thread(descendants_bytes)
        text = sessions.metrics.text(len(sessions), sessions.limits.max_sessions, sessions.hung, below)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def _task(self, body: TaskBody) -> Task:
        self._check_name(body.env)
        return Task(body.env, body.item_id, seed=body.seed, extra=body.extra)

    def _check_name(self, name: str) -> None:
        if name not in self._names:
            raise Problem(422, "Another world", f"this server serves {self._sessions.world.name}, not {name}.")


def _started(session: Session) -> dict[str, Any]:
    return {**_seen(session.progress), "instructions": session.instructions}


def _seen(progress: Progress) -> dict[str, Any]:
    return {"observation": progress.observation.text, "state_key": progress.state_key}


async def _parse(request: Request, model: type[B]) -> B:
    return _validated(await read_body(request.receive), model)


def _validated(body: bytes, model: type[B]) -> B:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        reasons = "; ".join(
            f"{'.'.join(map(str, flaw['loc'])) or 'body'}: {flaw['msg']}" for flaw in error.errors()[:5]
        )
        raise Problem(422, "Not a valid request", reasons) from error


def _session_id(request: Request) -> int:
    return _number(request.path_params["session"])


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise Problem(404, "No such session", "a session id is a whole number of at most 16 digits.")
    return int(text)
