"""HTTP beneath both protocols: bodies with a bound, JSON out, problem details, and the bearer token."""

import asyncio
import json
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmanus_rl.envs.access import is_loopback
from openmanus_rl.envs.service.problems import Problem

MAX_BODY_BYTES = 1 << 20
BODY_SECONDS = 30.0

# What `json.dumps` makes anew for every call, made once: a step's answer is small, and making it is half of the work.
_in_pieces: Callable[[Any, int], Iterable[str]] = vars(json.encoder)["c_make_encoder"](
    None, json.JSONEncoder().default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False
)


async def read_body(receive: Receive) -> bytes:
    """The request's body, if it is of a sane size and comes in a sane time."""
    message = _message_at_hand(receive)
    body = b"" if message is None else _content(message)
    if message is not None and not message.get("more_body"):
        return body
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while message is None or message.get("more_body"):
                message = await receive()
                body += _content(message)
                if len(body) > MAX_BODY_BYTES:
                    raise Problem(413, "Too large", f"a request body has at most {MAX_BODY_BYTES} bytes.")
    except TimeoutError as error:
        raise Problem(408, "Too slow", f"the body did not arrive within {BODY_SECONDS:g} s.") from error
    return body


def _message_at_hand(receive: Receive) -> Message | None:
    """What can be had without waiting, and so without a timer: mostly the whole of a small request."""
    waiting = cast(Coroutine[Any, Any, Message], receive())
    try:
        waiting.send(None)
    except StopIteration as arrived:
        return cast(Message, arrived.value)
    waiting.close()  # nothing is lost: it would have waited
    return None


def _content(message: Message) -> bytes:
    if message["type"] == "http.disconnect":
        raise Problem(400, "Cut short", "the connection closed before the body was complete.")
    content: bytes = message.get("body", b"")
    return content


def encode(content: Any) -> bytes:
    """ASCII JSON. A world's answer that is not JSON (a set, a NaN) is the world's fault, and said so."""
    try:
        return "".join(_in_pieces(content, 0)).encode()
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


class RefusePages:
    """Middleware: a web page gets no further, though the browser that shows it is on this machine.

    A page's request names its origin, or comes for a name that the page's owner has pointed at this machine. A step
    need not pass here: it takes a session's id, and a page gets none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _of_a_page(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await problem_response(Problem(403, "Not for web pages", refusal))(scope, receive, send)


def _of_a_page(scope: Scope) -> str | None:
    """Why the request looks like one of a page elsewhere, or None."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b"origin")}
    host, origin = headers.get(b"host"), headers.get(b"origin")
    if host is not None and not is_loopback(_name_in(host)):
        return f"{host} is no loopback address: ask for 127.0.0.1, or serve with a token."
    if origin is not None and origin != f"http://{host}":
        return f"a page of {origin} asks: serve with a token, and send it."
    return None


def _name_in(host: str) -> str:
    """The name without the port; nothing where it cannot be read."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


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
