"""The page on a port of this machine."""

import ipaddress
import secrets
import socket
from pathlib import Path

import uvicorn

from openmanus_rl.envs.access import is_loopback, listen, url_of
from openmanus_rl.viewer.app import make_app
from openmanus_rl.viewer.workspace import Workspace

GRACE_SECONDS = 3
"""How long answers that are under way may take when the server ends."""


class ViewerServer:
    """Listens from the moment it is made; `run` answers until it is told to stop."""

    def __init__(self, root: Path, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> None:
        """A port of 0 is a free one. Off loopback there is always a token: one is made if none is given."""
        self.workspace = Workspace(root)
        self.token = token or (None if is_loopback(host) else secrets.token_urlsafe(24))
        self._socket = listen(host, port, "--port")
        self.url = f"{_url_for_others(self._socket)}/" + (f"?token={self.token}" if self.token else "")
        app = make_app(self.workspace, self.token, is_ending=lambda: self._server.should_exit)
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_SECONDS)
        )

    def run(self) -> None:
        """Answer until Ctrl-C, or `stop` from another thread."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        self._server.should_exit = True


def _url_for_others(listener: socket.socket) -> str:
    """The address; if it listens on all of the machine's, one that another machine can open."""
    host = listener.getsockname()[0]
    if not ipaddress.ip_address(host).is_unspecified:
        return url_of(listener)
    return url_of(listener).replace(f"[{host}]" if ":" in host else host, _address_of_this_machine())


def _address_of_this_machine() -> str:
    """The one that it has towards others, else its name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        try:
            towards.connect(("192.0.2.1", 9))  # sends nothing: it only chooses the way
            return str(towards.getsockname()[0])
        except OSError:
            return socket.gethostname()
