"""Environment servers of a run: started side by side, started again when one ends, stopped together.

Ctrl-C in the terminal reaches the trainer alone, which then closes its sessions first.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from openmanus_rl.envs.access import listen, require_safe_host, token_from_environment
from openmanus_rl.envs.registry import python_of
from openmanus_rl.envs.server_process import RESTART_WINDOW_SECONDS, RESTARTS, ServerProcess

START_SECONDS = 60.0
STOP_SECONDS = 5.0
WATCH_SECONDS = 0.1

Say = Callable[[str], None]


class EnvServers:
    """Servers of one environment that run until `stop`, the end of the `with` block, or the end of this process.

    One that ends by itself is started again on its port, a few times; its sessions are lost. `say` is told, in another
    thread.
    """

    def __init__(self, servers: Sequence[ServerProcess], say: Say) -> None:
        self._servers = servers
        self._say = say
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True, name="env-servers")

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self._servers]

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self._servers]

    def dead(self) -> dict[str, str]:
        """The servers that ended and stay down: each one's URL, with its exit code and the end of its log."""
        return {
            server.url: server.end
            for server in self._servers
            if server.exit_code is not None and not server.may_restart
        }

    def watch(self) -> None:
        """Start servers again that end from here on."""
        self._watcher.start()

    def stop(self) -> None:
        """Ask all servers to end, and kill what has not ended within `STOP_SECONDS`. Stopping twice is fine."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for server in self._servers:
            server.ask_to_end()
        deadline = time.monotonic() + STOP_SECONDS
        for server in self._servers:
            server.wait_for_end(max(0.0, deadline - time.monotonic()))

    def wait_until_ready(self, seconds: float) -> None:
        """Return when every server answers; a `UserError` with the log's end tells of one that does not."""
        began = time.monotonic()
        for server in self._servers:
            server.wait_until_ready(began, seconds)

    def _watch(self) -> None:
        running = list(self._servers)
        while running and not self._stopping.wait(WATCH_SECONDS):
            for server in [server for server in running if server.exit_code is not None]:
                if server.may_restart:
                    self._say(server.restart())
                    continue
                running.remove(server)
                server.retire()
                often = f"more than {RESTARTS} times in {RESTART_WINDOW_SECONDS:g} s"
                self._say(f"the environment server at {server.url} ended {often} and stays down; its log: {server.log}")

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
    say: Say = lambda text: None,
) -> EnvServers:
    """Start `count` servers side by side, wait until all are ready, and watch over them.

    With `base_port` they take the ports from there on, and a taken one is an error; without, free ones.
    """
    require_safe_host(host, token_from_environment())
    python = python_of(env_name)
    log_dir.mkdir(parents=True, exist_ok=True)
    arguments = ["--env", env_name, "--host", host, "--options", json.dumps(dict(options or {}))]
    with ExitStack() as until_started:
        ports = [0 if base_port is None else base_port + index for index in range(count)]
        listeners = [until_started.enter_context(listen(host, port, "--base_port")) for port in ports]
        started: list[ServerProcess] = []
        servers = EnvServers(started, say)
        until_started.callback(servers.stop)
        for index, listener in enumerate(listeners):
            started.append(ServerProcess(python, listener, arguments, log_dir / f"server-{index}.log"))
        servers.wait_until_ready(start_seconds)
        until_started.pop_all()
    servers.watch()
    return servers
