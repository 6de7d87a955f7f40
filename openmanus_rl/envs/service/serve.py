"""The service as a process: its command line, its socket, and its end."""

import argparse
import gc
import json
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from openmanus_rl.envs.access import TOKEN_VARIABLE, listen, require_safe_host, token_from_environment, url_of
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.service.app import SHUT_DOWN_SECONDS, build_app
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.envs.service.world_inline import alarm_installed
from openmanus_rl.errors import UserError

KEEP_ALIVE_SECONDS = 120
"""Longer than any client of ours keeps a connection, so that a request never meets a closing one."""

GRACE_SECONDS = 1
"""How long running requests may go on once the server is told to stop."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal, or until the parent is gone; the exit code is 2 for a user's mistake."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if arguments.die_with_parent:
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        serve(arguments)
    except UserError as error:
        print(f"openmanus-rl: error: {error}", file=sys.stderr)
        return 2
    return 0


def serve(arguments: argparse.Namespace) -> None:
    token = arguments.token or token_from_environment()
    require_safe_host(arguments.host, token)
    if arguments.fd is None:
        listener = listen(arguments.host, arguments.port, "--port")
    else:
        listener = socket.socket(fileno=arguments.fd)
        require_safe_host(listener.getsockname()[0], token)
    app = build_app(
        environment_class(arguments.env),
        _read_options(arguments.options),
        Limits(
            max_sessions=arguments.max_sessions,
            idle_seconds=arguments.idle_seconds,
            step_seconds=arguments.step_seconds,
        ),
        spec=arguments.env,
        token=token,
        inline=True,
    )
    gc.freeze()  # what is here by now stays; collections need not look at it again and again
    print(f"{arguments.env} is served at {url_of(listener)}", flush=True)
    with alarm_installed():
        run_app(app, listener)


def run_app(app: ASGIApp, listener: socket.socket) -> None:
    """Serve an application on a socket until a signal."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http="httptools",
            loop="uvloop",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    server.run(sockets=[listener])


def _end_with_parent(parent: int) -> None:
    """Stop when stdin, a pipe from the parent, closes: it does so however the parent dies.

    A process that the parent forked may hold the pipe open, so the parent's id is watched too.
    """
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], 1.0)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            break
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS + SHUT_DOWN_SECONDS + 0.5)
    os._exit(1)


def _read_options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"--options is not JSON: {error}", "For example: --options '{\"size\": 5}'") from error
    if not isinstance(options, dict):
        raise UserError("--options is not a JSON object.", "For example: --options '{\"size\": 5}'")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m openmanus_rl.envs.service", description="Serve one environment over HTTP."
    )
    parser.add_argument("--env", required=True, help="its name, or module:Class for one of your own")
    parser.add_argument("--options", default="{}", help="its options as a JSON object")
    parser.add_argument("--host", default="127.0.0.1", help="other than loopback only with a token")
    parser.add_argument("--token", help=f"the bearer token that requests must bear; {TOKEN_VARIABLE} by default")
    parser.add_argument("--port", type=int, default=36001, help="0 takes any free port")
    parser.add_argument("--fd", type=int, help="serve on this listening socket, inherited from the parent")
    parser.add_argument(
        "--max-sessions", type=int, default=Limits.max_sessions, help="further ones are refused with a Retry-After"
    )
    parser.add_argument(
        "--idle-seconds", type=float, default=Limits.idle_seconds, help="an unused session is closed after this long"
    )
    parser.add_argument(
        "--step-seconds",
        type=float,
        default=Limits.step_seconds,
        help="a step that takes longer ends its session as failed",
    )
    parser.add_argument("--die-with-parent", action="store_true", help="stop when stdin closes")
    return parser
