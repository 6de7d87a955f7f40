"""The page on a port of this machine."""

import ipaddress
import secrets
import socket
from pathlib import Path

import uvicorn

from openmanus_rl.errors import UserError
from openmanus_rl.viewer.app import make_app
from openmanus_rl.viewer.workspace import Workspace


class ViewerServer:
    """Listens from the moment it is made; `run` answers until it is told to stop."""

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        """A port of 0 is a free one. Off loopback there is always a token: one is made if none is given."""
        self.workspace = Workspace(root)
        self.token = token or (None if is_loopback(host) else secrets.token_urlsafe(24))
        self._socket = _listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}/" + (f"?token={self.token}" if self.token else "")
        config = uvicorn.Config(
            make_app(self.workspace, self.token), log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Answer until Ctrl-C, or `stop` from another thread."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise UserError(
            f"the page cannot listen on {host}:{port}: {error}.", "Leave --port out for a free one."
        ) from error
    listener.listen(64)
    return listener
