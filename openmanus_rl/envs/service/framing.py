"""Python values over a socket between a server and its worlds' processes: four bytes of length, then the pickle."""

import asyncio
import pickle
import socket
import struct
from typing import Any

_LENGTH = struct.Struct(">I")


class UnreadableValue(Exception):
    """A value that was sent but cannot be made again here."""


def pack(value: Any) -> bytes:
    body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


def receive(connection: socket.socket) -> Any:
    """The next value; `EOFError` if the other side is gone."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return pickle.loads(_exactly(connection, length))


async def receive_from(reader: asyncio.StreamReader) -> Any:
    """The next value; an `EOFError` if the other side is gone, `UnreadableValue` if it cannot be made again here."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    body = await reader.readexactly(length)
    try:
        return pickle.loads(body)
    except Exception as error:
        raise UnreadableValue(f"its answer cannot be read outside its process: {type(error).__name__}") from error


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
