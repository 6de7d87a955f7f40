"""Recording: an application in front of another that writes down what passes."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmanus_rl.envs.cassette.exchange import Exchange, decoded
from openmanus_rl.errors import UserError

UNRECORDED = ("/health", "/metrics", "/")
"""Paths that tell of the server and not of a world."""

_PASSED_ON = ("content-type", "authorization")
_PASSED_BACK = ("content-type", "retry-after", "www-authenticate")


class Recorder:
    """Middleware: writes every exchange to a cassette, before its caller can have the whole answer."""

    def __init__(self, app: ASGIApp, cassette: Path) -> None:
        self._app = app
        try:
            cassette.parent.mkdir(parents=True, exist_ok=True)
            self._file = cassette.open("w", encoding="utf-8")
        except OSError as error:
            raise UserError(f"{cassette} cannot be written: {error.strerror}.", "Give another file.") from error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNRECORDED:
            await self._app(scope, receive, send)
            return
        passing = _Passing(scope)

        async def listen() -> Message:
            message = await receive()
            passing.asked.extend(message.get("body", b""))
            return message

        async def tell(message: Message) -> None:
            for exchange in passing.told(message):
                self._file.write(exchange.line())
            self._file.flush()
            await send(message)

        await self._app(scope, listen, tell)


class _Passing:
    """A request under way; what it amounts to is known before its caller can act on the answer."""

    def __init__(self, scope: Scope) -> None:
        query = scope["query_string"].decode("latin-1")
        self._method = scope["method"]
        self._url = f"{scope['path']}?{query}" if query else scope["path"]
        self.asked = bytearray()
        self._answered = bytearray()
        self._status = 0
        self._is_known = False

    def told(self, message: Message) -> Iterator[Exchange]:
        """The exchanges that are whole with this part of the answer: of a batch of steps, one for each of them."""
        self._status = message.get("status", self._status)
        self._answered.extend(message.get("body", b""))
        if self._url.endswith("/v1/step_batch") and self._status == 200:
            yield from self._steps()
            return
        # An answer without a body is whole with its head: the caller may be gone before the rest of it is sent.
        is_last = message["type"] == "http.response.body" and not message.get("more_body")
        if not self._is_known and (is_last or self._status == 204):
            self._is_known = True
            answer = decoded(bytes(self._answered))
            yield Exchange(self._method, self._url, decoded(bytes(self.asked)), self._status, answer)

    def _steps(self) -> Iterator[Exchange]:
        """The lines that have come in whole; each is the answer to one step."""
        *lines, rest = bytes(self._answered).split(b"\n")
        self._answered = bytearray(rest)
        steps = json.loads(self.asked)["steps"] if lines else []
        for line in map(json.loads, lines):
            step = dict(steps[line["index"]])
            where = f"/v1/sessions/{step.pop('session_id')}/step"
            yield Exchange("POST", where, step, line["status"], line["answer"])


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
