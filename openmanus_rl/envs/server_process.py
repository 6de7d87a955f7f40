"""One environment server as a child process, on a port that outlives the process.

The parent holds the listening socket and hands it down, so no port is lost between choosing and using it, nor when the
process ends: whoever connects then waits for the next one. A child holds the reading end of a pipe from the parent and
stops when that closes: no server outlives its trainer, however the trainer ends.
"""

import http.client
import socket
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from openmanus_rl.envs.access import token_from_environment, url_of
from openmanus_rl.errors import UserError

LOG_TAIL_CHARACTERS = 2000
RESTARTS = 5
RESTART_WINDOW_SECONDS = 300.0
"""A server that ended `RESTARTS` times within so long stays down."""


class ServerProcess:
    """A server that runs, or has ended; `restart` puts another process in its place."""

    def __init__(self, python: str, listener: socket.socket, arguments: Sequence[str], log: Path) -> None:
        self.url = url_of(listener)
        self.log = log
        self._python = python
        self._listener = listener
        self._arguments = list(arguments)
        self._restarted: deque[float] = deque()
        log.write_bytes(b"")
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def may_restart(self) -> bool:
        """Whether it has restarts left for now."""
        while self._restarted and self._restarted[0] < time.monotonic() - RESTART_WINDOW_SECONDS:
            self._restarted.popleft()
        return len(self._restarted) < RESTARTS

    @property
    def end(self) -> str:
        """How it ended, for people."""
        return f"exit code {self.exit_code}; its log, {self.log}, ends with:\n{self._tail()}"

    def restart(self) -> str:
        """Put a process in the place of the one that ended; what happened, for people."""
        self._restarted.append(time.monotonic())
        told = f"the environment server at {self.url} ended (exit code {self.exit_code}) and was started again"
        with self.log.open("a") as log:
            log.write(f"{told} ({len(self._restarted)} of at most {RESTARTS} times in {RESTART_WINDOW_SECONDS:g} s)\n")
        self._release()
        self._process = self._start()
        return f"{told}; its log: {self.log}"

    def retire(self) -> None:
        """Give the port up: who connects is refused from here on."""
        self._listener.close()

    def ask_to_end(self) -> None:
        self.retire()
        self._process.terminate()

    def wait_for_end(self, seconds: float) -> None:
        """Kill it if it has not ended by then."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._release()

    def wait_until_ready(self, began: float, seconds: float) -> None:
        """Return when it answers; a `UserError` with the log's end tells why it does not so long after `began`."""
        while not self._is_healthy():
            if self.exit_code is not None:
                self._give_up(f"ended with exit code {self.exit_code} before it was ready")
            if time.monotonic() > began + seconds:
                self._give_up(f"was not ready after {seconds:g} s")
            time.sleep(0.05)

    def _start(self) -> "subprocess.Popen[bytes]":
        descriptor = self._listener.fileno()
        command = [self._python, "-m", "openmanus_rl.envs.service", *self._arguments]
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*command, "--fd", str(descriptor), "--die-with-parent"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[descriptor],
                start_new_session=True,
            )

    def _release(self) -> None:
        """Close the pipe to a process that has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _give_up(self, what: str) -> None:
        raise UserError(f"the environment server at {self.url} {what}.", f"Its log, {self.log}:\n{self._tail()}")

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:].strip()

    def _is_healthy(self) -> bool:
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=1.0)
        token = token_from_environment()
        try:
            connection.request("GET", "/health", headers={"Authorization": f"Bearer {token}"} if token else {})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
