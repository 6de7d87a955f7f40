"""A process per world, for worlds that need a core of their own or may hang beyond help: a process can be killed.

The processes are forked by one helper, the nursery, which has the world's module imported already and what its worlds
share at hand (`Environment.warm_up`). A world's process ends when the server closes its connection, however the server
ends.
"""

import asyncio
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.service.framing import UnreadableValue, pack, receive, receive_from
from openmanus_rl.envs.service.runner import Outcome, Runner, WorldCrashed, WorldHung

T = TypeVar("T")

FORK_SECONDS = 60.0
"""How long the nursery may take to import the world and fork."""


class Nursery:
    """Starts processes for the worlds of one source (a name, or module:Class), and kills them. May be shared."""

    def __init__(self, source: str, options: Mapping[str, Any]) -> None:
        self.source = source
        self._options = json.dumps(dict(options))
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def fork(self) -> tuple[int, socket.socket]:
        """A new process: its id, and the connection to it. Blocks."""
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            try:
                control = self._started()
                socket.send_fds(control, [b"fork"], [theirs.fileno()])
                return int(receive(control)), ours
            except (OSError, EOFError) as error:
                ours.close()
                self._close()  # the next world starts another
                raise WorldCrashed(
                    "the process that starts worlds has ended; the server's log has the details"
                ) from error

    def kill(self, pid: int) -> None:
        """End one of its processes at once. It answers for their ids: none is reused before it knows the end."""
        with self._lock:
            if self._control is not None:
                try:
                    self._control.sendall(str(pid).encode())
                    receive(self._control)
                except (OSError, EOFError):
                    self._close()

    def close(self) -> None:
        """End the helper and all its worlds, for good; whoever waits for a fork meanwhile, waits in vain."""
        self._closed = True
        if (helper := self._process) is not None:
            helper.kill()
        with self._lock:
            self._close()

    def _started(self) -> socket.socket:
        if self._closed:
            raise EOFError("the server stops")
        if self._control is None:
            self._control, theirs = socket.socketpair()
            self._control.settimeout(FORK_SECONDS)
            program = "openmanus_rl.envs.service.nursery"
            command = [sys.executable, "-m", program, self.source, str(theirs.fileno()), self._options]
            paths = os.pathsep.join(filter(None, sys.path))
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, "PYTHONPATH": paths},
                )
        return self._control

    def _close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class WorldProcess(Runner):
    """Runs calls one after another in a process; a hung or dead one is the end of this world only."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._pid: int | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def build(self, world: type[Environment], options: Mapping[str, Any], seconds: float) -> None:
        self._pid, connection = await asyncio.to_thread(self._nursery.fork)
        self._reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        await self._ask(dict(options), seconds)

    async def call(self, function: Callable[[Environment], T], seconds: float) -> T:
        answer: T = await self._ask(function, seconds)
        return answer

    def end(self, *, close_world: bool) -> None:
        """A closed world's process ends by itself when its connection closes; any other is killed."""
        if self._writer is not None:
            self._writer.close()
        if close_world and self._pid is not None:
            threading.Thread(target=functools.partial(self._nursery.kill, self._pid), daemon=True).start()

    async def _ask(self, what: Any, seconds: float) -> Any:
        assert self._reader is not None
        assert self._writer is not None
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(pack(what))
                await self._writer.drain()
                outcome: Outcome = await receive_from(self._reader)
        except TimeoutError as error:
            raise WorldHung(seconds) from error
        except UnreadableValue as error:
            raise WorldCrashed(str(error)) from error
        except (OSError, EOFError) as error:
            raise WorldCrashed("the world's process ended; the server's log has the details") from error
        value, failure = outcome
        if failure is not None:
            raise failure
        return value
