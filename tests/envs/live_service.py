"""A real service on a free loopback port, inside the test's process, and a plain way to call it."""

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import uvicorn

from openmanus_rl.envs.access import listen, url_of
from openmanus_rl.envs.service.app import build_app


class Answer(NamedTuple):
    status: int
    content: Any
    headers: Any


@contextlib.contextmanager
def live_service(world: type, options: Any = None, limits: Any = None, **more: Any) -> Iterator[str]:
    """The URL of a service of `world`."""
    with live_app(build_app(world, options, limits, **more)) as url:
        yield url


@contextlib.contextmanager
def live_app(app: Any) -> Iterator[str]:
    listener = listen("127.0.0.1", 0, "")
    config = uvicorn.Config(app, log_level="error", ws="none", lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    give_up = time.monotonic() + 120
    while not server.started and time.monotonic() < give_up:
        time.sleep(0.005)
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive(), "the service did not stop"


def call(method: str, url: str, body: Any = None, headers: dict[str, str] | None = None, raw: bytes | None = None):
    """One request; `raw` sends these bytes as they are."""
    data = raw if raw is not None else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=240) as response:
            return _answer(response.status, response.read(), response.headers)
    except urllib.error.HTTPError as error:
        return _answer(error.code, error.read(), error.headers)


def _answer(status: int, body: bytes, headers: Any) -> Answer:
    return Answer(status, json.loads(body) if body else None, headers)
