"""Who may reach an environment server: the sockets it listens on, and the token that strangers need."""

import ipaddress
import os
import socket

from openmanus_rl.errors import UserError

TOKEN_VARIABLE = "OPENMANUS_RL_ENV_TOKEN"
"""The environment variable that holds the bearer token, for servers and clients alike."""


def token_from_environment() -> str | None:
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token and not all("!" <= letter <= "~" for letter in token):
        raise UserError(
            f"{TOKEN_VARIABLE} cannot be sent as a token.",
            "It may have ASCII letters, digits and signs: no space or newline.",
        )
    return token


def require_safe_host(host: str, token: str | None) -> None:
    """Other machines may come in only with a token."""
    if token or is_loopback(host):
        return
    raise UserError(
        f"{host} can be reached from other machines, and no token is set.",
        f"Set {TOKEN_VARIABLE} for the server and its clients, or serve on 127.0.0.1.",
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int, option: str) -> socket.socket:
    """A listening socket; port 0 takes any free one. `option` is what the user would change if the port is taken."""
    if not 0 <= port <= 65535:
        raise UserError(f"{port} is no port: there are 0 to 65535.", f"Choose another with {option}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UserError(f"{host} is not a host of this machine: {error.strerror}.", "Give another --host.") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise UserError(f"port {port} on {host} cannot be used: {error}.", f"Choose another with {option}.") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The address a client is given."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
