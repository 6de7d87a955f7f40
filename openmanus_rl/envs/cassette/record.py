"""Recording: an application in front of another that writes down what passes."""

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmanus_rl.envs.cassette.exchange import Exchange

UNRECORDED = ("/health", "/metrics", "/")
"""Paths that tell of the server and not of a world."""

_PASSED_ON = ("content-type", "authorization")
_PASSED_BACK = ("content-type", "retry-after", "www-authenticate")


class Recorder:
    """Middleware: writes every exchange to a cassette, before its caller can have the whole answer."""

    def __init__(self, app: ASGIApp, cassette: Path) -> None:
        self._app = app
        cassette.parent.mkdir(parents=True, exist_ok=True)
        self._file = cassette.open("w", encoding="utf-8")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNRECORDED:
            await self._app(scope, receive, send)
            return
        asked, answered, status, written = bytearray(), bytearray(), 0, False

        async def listen() -> Message:
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def tell(message: Message) -> None:
            nonlocal status, written
            status = message.get("status", status)
            answered.extend(message.get("body", b""))
            # An answer without a body is whole with its head: the caller may be gone before the rest of it is sent.
            last = message["type"] == "http.response.body" and not message.get("more_body")
            if not written and (last or status == 204):
                written = True
                self._write(scope, bytes(asked), status, bytes(answered))
            await send(message)

        await self._app(scope, listen, tell)

    def _write(self, scope: Scope, asked: bytes, status: int, answered: bytes) -> None:
        query = scope["query_string"].decode("latin-1")
        url = f"{scope['path']}?{query}" if query else scope["path"]
        for exchange in _single(scope["method"], url, _decoded(asked), status, answered):
            self._file.write(exchange.line())
        self._file.flush()


def _single(method: str, url: str, body: Any, status: int, answered: bytes) -> Iterable[Exchange]:
    """The exchange; a batch of steps as one for each of its sessions."""
    if not url.endswith("/v1/step_batch") or status != 200:
        yield Exchange(method, url, body, status, _decoded(answered))
        return
    for line in map(json.loads, answered.splitlines()):
        step = dict(body["steps"][line["index"]])
        where = f"/v1/sessions/{step.pop('session_id')}/step"
        yield Exchange("POST", where, step, line["status"], line["answer"])


def _decoded(body: bytes) -> Any:
    """JSON, or the text of what is none, or None for nothing."""
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")


def forwarding_app(upstream: str) -> Starlette:
    """An application that passes every request on to a server elsewhere, and its answer back."""
    upstream = upstream.rstrip("/")

    async def forward(request: Request) -> Response:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = upstream + request.url.path + (f"?{request.url.query}" if request.url.query else "")
        http = aiohttp.ClientSession(auto_decompress=False)
        try:
            answer = await http.request(
                request.method, url, data=await request.body() or None, headers=headers, allow_redirects=False
            )
        except (aiohttp.ClientError, OSError) as error:
            await http.close()
            return JSONResponse({"title": "No answer", "detail": f"{upstream}: {error}", "status": 502}, 502)

        async def chunks() -> AsyncIterator[bytes]:
            try:
                async for chunk in answer.content.iter_any():
                    yield chunk
            finally:
                answer.close()
                await http.close()

        passed = {name: answer.headers[name] for name in _PASSED_BACK if name in answer.headers}
        return StreamingResponse(chunks(), answer.status, passed)

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return Starlette(routes=[Route("/{path:path}", forward, methods=methods)])
