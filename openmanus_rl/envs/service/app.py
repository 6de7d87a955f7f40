"""The whole service as one application: native routes, AgentGym's routes, sessions and their sweeper."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.options import refused_options
from openmanus_rl.envs.service.agentgym import agentgym_routes, complaint
from openmanus_rl.envs.service.agentgym_indexed import indexed_routes
from openmanus_rl.envs.service.lane import StepLane
from openmanus_rl.envs.service.native import NativeRoutes
from openmanus_rl.envs.service.problems import Problem
from openmanus_rl.envs.service.sessions import Limits, Sessions
from openmanus_rl.envs.service.wire import RefusePages, RequireToken, json_response, problem_response
from openmanus_rl.errors import UserError

SHUT_DOWN_SECONDS = 2.0


def build_app(
    world: type[Environment],
    options: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    *,
    spec: str | None = None,
    token: str | None = None,
    inline: bool = False,
) -> ASGIApp:
    """Serve `world`; `spec` is the name it was asked for by, if that is not its own (`module:Class`).

    `inline` lets quick worlds step on the event loop, which must then run on the main thread of a process that has
    the alarm installed.
    """
    options = options or {}
    description = describe_world(world, options)
    isolation = description["isolation"]
    sessions = Sessions(world, options, limits or Limits(), source=spec, isolation=isolation, inline=inline)
    native = NativeRoutes(sessions, description, spec or world.name)

    async def greet(_: Request) -> Response:
        return json_response(f"OpenManus-RL serves {world.name} here.")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(sessions.sweep_for_ever())
        try:
            yield
        finally:
            sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await sweeper
            await sessions.shut_down(SHUT_DOWN_SECONDS)

    agentgym = agentgym_routes(sessions)
    wire = [*(agentgym.routes() if agentgym else []), *indexed_routes(sessions)]
    app: ASGIApp = Starlette(
        routes=[*wire, *native.routes(), Route("/", greet)],
        exception_handlers={Problem: _tell_problem, HTTPException: _tell_http_error},
        lifespan=lifespan,
    )
    app = app if token else RefusePages(app)
    app = StepLane(app, {agentgym.step_path: (agentgym.step, complaint)} if agentgym else {}, native.step)
    return RequireToken(app, token) if token else app


def describe_world(world: type[Environment], options: Mapping[str, Any]) -> dict[str, Any]:
    """What a world says of itself. Builds one, so that wrong options or missing requirements show at the start."""
    if world.served_elsewhere:
        raise UserError(
            f"{world.name} is served by AgentGym's own server, not here.",
            "Start that, and train with its address: env.urls=[http://HOST:PORT]",
        )
    refused = refused_options(world, options)
    if refused:
        raise UserError(refused, "Look at env.options in the config.")
    sample = world(**options)
    try:
        instructions = sample.instructions()
    finally:
        sample.close()
    return {
        "name": world.name,
        "grammar": sample.grammar.describe(),
        "forms": [form.shown for form in sample.grammar.forms],
        "success_rule": world.success_rule,
        "score_range": list(sample.score_range),
        "sessions_at_once": sample.sessions_at_once,
        "expert_seconds": sample.expert_seconds,
        "isolation": sample.isolation,
        "instructions": instructions,
    }


def _tell_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error)


def _tell_http_error(request: Request, error: Exception) -> Response:
    """A path or method that does not exist."""
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path} is not served here."
    return problem_response(Problem(error.status_code, error.detail, detail, error.headers))
