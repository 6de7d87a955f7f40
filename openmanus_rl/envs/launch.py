"""Environment servers as child processes of the trainer.

The parent binds each port and hands the listening socket down, so no port is lost between choosing and using it. A
child holds the reading end of a pipe from the parent and stops when that closes: no server outlives its trainer,
however the trainer ends. Ctrl-C in the terminal reaches the trainer alone, which then closes its sessions first.
"""

import http.client
import json
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from openmanus_rl.envs.access import listen, require_safe_host, token_from_environment, url_of
from openmanus_rl.envs.registry import python_of
from openmanus_rl.errors import UserError

START_SECONDS = 60.0
STOP_SECONDS = 5.0
LOG_TAIL_CHARACTERS = 2000


@dataclass(frozen=True)
class _Server:
    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:].strip()


class EnvServers:
    """Servers of one environment that run until `stop`, the end of the `with` block, or the end of this process."""

    def __init__(self, servers: list[_Server]) -> None:
        self._servers = servers

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self._servers]

    @property
    def pids(self) -> list[int]:
        return [server.process.pid for server in self._servers]

    def dead(self) -> dict[str, str]:
        """The servers that ended by themselves: each one's URL, with its exit code and the end of its log."""
        return {
            server.url: f"exit code {server.process.returncode}; its log, {server.log}, ends with:\n{server.tail()}"
            for server in self._servers
            if server.process.poll() is not None
        }

    def stop(self) -> None:
        """Ask all servers to end, and kill what has not ended within `STOP_SECONDS`. Stopping twice is fine."""
        for server in self._servers:
            server.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for server in self._servers:
            try:
                server.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()
            if server.process.stdin is not None:
                server.process.stdin.close()

    def wait_until_ready(self, seconds: float) -> None:
        """Return when every server answers; a `UserError` with the log's end tells of one that does not."""
        deadline = time.monotonic() + seconds
        for server in self._servers:
            while not _is_healthy(server.url):
                if server.process.poll() is not None:
                    self._give_up(server, f"ended with exit code {server.process.returncode} before it was ready")
                if time.monotonic() > deadline:
                    self._give_up(server, f"was not ready after {seconds:g} s")
                time.sleep(0.05)

    def _give_up(self, server: _Server, what: str) -> None:
        raise UserError(f"the environment server at {server.url} {what}.", f"Its log, {server.log}:\n{server.tail()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def launch_servers(
    env_name: str,
    *,
    log_dir: Path,
    options: Mapping[str, Any] | None = None,
    count: int = 1,
    base_port: int | None = None,
    host: str = "127.0.0.1",
    start_seconds: float = START_SECONDS,
) -> EnvServers:
    """Start `count` servers side by side and wait until all are ready.

    With `base_port` they take the ports from there on, and a taken one is an error; without, free ones.
    """
    require_safe_host(host, token_from_environment())
    python = python_of(env_name)
    log_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as until_started:
        ports = [0 if base_port is None else base_port + index for index in range(count)]
        listeners = [until_started.enter_context(listen(host, port, "--base_port")) for port in ports]
        started: list[_Server] = []
        servers = EnvServers(started)
        until_started.callback(servers.stop)
        for index, listener in enumerate(listeners):
            log = log_dir / f"server-{index}.log"
            command = [python, "-m", "openmanus_rl.envs.service", "--env", env_name, "--host", host]
            command += [
                "--options",
                json.dumps(dict(options or {})),
                "--fd",
                str(listener.fileno()),
                "--die-with-parent",
            ]
            with log.open("wb") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[listener.fileno()],
                    start_new_session=True,
                )
            started.append(_Server(url_of(listener), process, log))
            listener.close()
        servers.wait_until_ready(start_seconds)
        until_started.pop_all()
    return servers


def _is_healthy(url: str) -> bool:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=2.0)
    token = token_from_environment()
    try:
        connection.request("GET", "/health", headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
