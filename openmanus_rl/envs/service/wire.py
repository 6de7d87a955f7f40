"""HTTP beneath both protocols: bodies with a bound, JSON out, problem details, and the bearer token."""

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from openmanus_rl.envs.service.problems import Problem

MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


async def read_body(request: Request) -> bytes:
    """The request's body, if it is of a sane size and comes in a sane time."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise Problem(413, "Too large", f"a request body has at most {MAX_BODY_BYTES} bytes.")
    except TimeoutError as error:
        raise Problem(408, "Too slow", f"the body did not arrive within {BODY_SECONDS:g} s.") from error
    except ClientDisconnect as error:
        raise Problem(400, "Cut short", "the connection closed before the body was complete.") from error
    return body


def encode(content: Any) -> bytes:
    """ASCII JSON. A world's answer that is not JSON (a set, a NaN) is the world's fault, and said so."""
    try:
        return _encode(content).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Problem(500, "The world failed", f"its answer cannot be written as JSON: {error}.") from error


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(content), status, headers, media_type="application/json")


def problem_body(problem: Problem) -> dict[str, Any]:
    """A problem detail (RFC 9457)."""
    return {"type": "about:blank", "title": problem.title, "status": problem.status, "detail": problem.detail}


def problem_response(problem: Problem) -> Response:
    body = json.dumps(problem_body(problem)).encode()
    return Response(body, problem.status, problem.headers, media_type="application/problem+json")


class RequireToken:
    """Middleware: a request without the bearer token gets no further."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._admits(scope):
            await self._app(scope, receive, send)
            return
        refusal = Problem(401, "Who are you?", "this server wants its bearer token.", {"WWW-Authenticate": "Bearer"})
        await problem_response(refusal)(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return secrets.compare_digest(given, self._expected)
