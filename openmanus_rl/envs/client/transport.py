"""One JSON request over a kept-alive connection, and the three ways it can get no answer."""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from openmanus_rl.errors import UserError

MAX_CONNECTIONS = 4096

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class NoAnswer(Exception):
    """The request may have reached the server, but no answer came back."""


class NotSent(NoAnswer):
    """The request never reached the server: there was no connection."""


class TooLate(NoAnswer):
    """Time ran out."""


@dataclass(frozen=True)
class Reply:
    """A status and the JSON that came with it (None for an empty body)."""

    status: int
    content: Any
    retry_after: float | None = None

    @property
    def complaint(self) -> str:
        """Why the server refused, in its own words."""
        if isinstance(self.content, dict):
            for key in ("detail", "error", "title"):
                if key in self.content:
                    return f"status {self.status}: {self.content[key]}"
        return f"status {self.status}: {str(self.content)[:200]}"


class Transport:
    """Sends requests; opens its connections in the event loop that first uses it."""

    def __init__(self, *, keep_alive_seconds: float, token: str | None = None) -> None:
        self._keep_alive_seconds = keep_alive_seconds
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._http: aiohttp.ClientSession | None = None

    async def request(self, method: str, url: str, body: Mapping[str, Any] | None, seconds: float) -> Reply:
        """The reply, whatever its status; `NoAnswer` if there is none within so many seconds."""
        with _told(url, seconds):
            async with self._sent(method, url, body, seconds) as response:
                return await _reply(response)

    async def lines(self, url: str, body: Mapping[str, Any], seconds: float) -> AsyncGenerator[bytes | Reply, None]:
        """The lines of a streamed answer as they come; or, if its status is not 200, the one reply in their place."""
        with _told(url, seconds):
            async with self._sent("POST", url, body, seconds) as response:
                if response.status != 200:
                    yield await _reply(response)
                    return
                rest = b""
                async for chunk in response.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    for line in whole:
                        yield line

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _sent(
        self, method: str, url: str, body: Mapping[str, Any] | None, seconds: float
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        data = None if body is None else _encode(body).encode()
        timeout = aiohttp.ClientTimeout(total=seconds)
        return self._session().request(method, url, data=data, timeout=timeout, allow_redirects=False)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=self._keep_alive_seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
            )
        return self._http


async def _reply(response: aiohttp.ClientResponse) -> Reply:
    return Reply(response.status, _decode(await response.read()), _seconds(response.headers.get("Retry-After")))


@contextmanager
def _told(url: str, seconds: float) -> Iterator[None]:
    """Every way to get no answer, as one of three."""
    if seconds <= 0:
        raise TooLate("no time was left for it")
    try:
        yield
    except TimeoutError as error:
        raise TooLate(f"no answer within {seconds:.3g} s") from error
    except aiohttp.ClientConnectorError as error:
        raise NotSent(f"no connection: {error.strerror or error}") from error
    except aiohttp.InvalidURL as error:
        raise UserError(f"{url!r} is not the address of a server.", "For example: http://127.0.0.1:36001") from error
    except (aiohttp.ClientError, OSError) as error:
        raise NoAnswer(f"the connection was lost ({type(error).__name__}: {error})") from error


def _decode(raw: bytes) -> Any:
    """JSON where it is JSON; an error page of some other program stays text."""
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")


def _seconds(retry_after: str | None) -> float | None:
    try:
        return float(retry_after) if retry_after else None
    except ValueError:
        return None
