"""`python -m openmanus_rl.envs.service.nursery SOURCE FD OPTIONS`: imports a world and forks a process a session.

Over the control socket FD comes `fork`, with the new world's connection attached, answered with the process's id; or
the id of a process to kill, answered when that is done. The nursery ends, and its worlds with it, when the control
socket closes.
"""

import json
import os
import queue
import signal
import socket
import sys
import threading
from functools import partial
from typing import Any, NoReturn

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.service.framing import pack, receive
from openmanus_rl.envs.service.runner import Outcome, WorldCrashed, outcome_of


def main(source: str, fd: int, options: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in the terminal is the server's affair
    world = environment_class(source)
    world.warm_up(**options)
    control = socket.socket(fileno=fd)
    children: set[int] = set()
    while True:
        message, fds, _, _ = socket.recv_fds(control, 64, 1)
        _reap(children)
        if not message:
            break
        if fds:
            pid = os.fork()
            if pid == 0:
                control.close()
                live(world, socket.socket(fileno=fds[0]))
            os.close(fds[0])
            children.add(pid)
            control.sendall(pack(pid))
        else:
            if int(message) in children:
                os.kill(int(message), signal.SIGKILL)
            control.sendall(pack(None))
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def live(world: type[Environment], connection: socket.socket) -> NoReturn:
    """A world's whole life: build it with the options that come first, then answer calls until the server is gone."""
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, calls), daemon=True).start()
    options = calls.get()
    place: list[Environment] = []
    connection.sendall(_packed(outcome_of(lambda: place.append(world(**options)))))
    while True:
        function = calls.get()
        connection.sendall(_packed(outcome_of(partial(function, *place))))


def _listen(connection: socket.socket, calls: "queue.SimpleQueue[Any]") -> None:
    """On a thread of its own, so that the end of the server ends a world that hangs."""
    while True:
        try:
            calls.put(receive(connection))
        except (OSError, EOFError):
            os._exit(0)


def _packed(outcome: Outcome) -> bytes:
    try:
        return pack(outcome)
    except Exception as unpicklable:  # noqa: BLE001 - a world may answer with anything
        return pack((None, WorldCrashed(f"its answer cannot leave its process: {type(unpicklable).__name__}")))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
