"""One request and its answer, as a line of a cassette; and which session it belongs to, in either protocol.

A line is a JSON object with `method`, `url`, `request_json`, `status` and `response`. Conversations recorded from
AgentGym's own servers in that form are cassettes too.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from openmanus_rl.errors import UserError

SESSION = "SESSION"
"""Stands for the session's id in a request that is compared with another session's."""

_NATIVE = re.compile(r"(?P<before>.*/v1/sessions/)(?P<session>\d{1,16})(?P<after>/.*)?")
_ID_KEYS = ("env_idx", "id")
"""AgentGym's names of a session; a request with both means the first."""


@dataclass(frozen=True)
class Exchange:
    """A request and its answer."""

    method: str
    url: str
    """The path and the query; a host before it is nobody's business."""
    request_json: Any
    status: int = 200
    response: Any = None

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @property
    def opens(self) -> bool:
        """Whether the answer names a new session."""
        return self.method == "POST" and self.path.endswith(("/create", "/v1/sessions"))

    @property
    def steps(self) -> bool:
        return self.method == "POST" and self.path.endswith("/step")

    @property
    def session(self) -> int | None:
        """The session that the request speaks of, or that its answer opened."""
        if self.opens:
            return _id_in(self.response, ("session_id", *_ID_KEYS))
        native = _NATIVE.fullmatch(self.path)
        if native:
            return int(native["session"])
        if isinstance(self.request_json, dict):
            return _id_in(self.request_json, _ID_KEYS)
        query = dict(parse_qsl(urlsplit(self.url).query))
        given = next((query[key] for key in _ID_KEYS if key in query), "")
        return int(given) if re.fullmatch(r"\d{1,16}", given) else None

    @property
    def question(self) -> "Exchange":
        """The request alone, with the session's id left out: equal for two sessions that ask the same."""
        path, body = self.path, self.request_json
        if not self.opens:
            native = _NATIVE.fullmatch(path)
            if native:
                path = f"{native['before']}{SESSION}{native['after'] or ''}"
            elif isinstance(body, dict):
                key = next((key for key in _ID_KEYS if key in body), None)
                body = {**body, key: SESSION} if key else body
        return Exchange(self.method, path, body)

    def answered_to(self, session: int) -> Any:
        """The answer as another session gets it."""
        mine = self.session
        if self.opens and isinstance(self.response, int):
            return session
        if not isinstance(self.response, dict):
            return self.response
        keys = ("session_id", *_ID_KEYS)
        return {key: session if key in keys and value == mine else value for key, value in self.response.items()}

    def line(self) -> str:
        record = {
            "method": self.method,
            "url": self.url,
            "request_json": self.request_json,
            "status": self.status,
            "response": self.response,
        }
        return json.dumps(record) + "\n"


def read_cassette(path: Path) -> Iterator[Exchange]:
    """The exchanges of a file, in the order in which they were answered."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield _read(line, f"{path}, line {number}")
    except OSError as error:
        raise UserError(
            f"there is no cassette at {path}: {error.strerror}.", "Make one: openmanus-rl env record"
        ) from error


def decoded(body: bytes) -> Any:
    """JSON, or the text of what is none, or None for nothing."""
    if not body:
        return None
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _read(line: bytes, where: str) -> Exchange:
    try:
        record = json.loads(line)
        parts = urlsplit(record["url"])
        url = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return Exchange(record["method"], url, record["request_json"], record["status"], record["response"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{where} is no exchange of a cassette: {error!r}.") from error


def _id_in(answer: Any, keys: tuple[str, ...]) -> int | None:
    if isinstance(answer, dict):
        answer = next((answer[key] for key in keys if key in answer), None)
    return answer if isinstance(answer, int) and not isinstance(answer, bool) else None
