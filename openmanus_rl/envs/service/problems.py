"""What can go wrong with a request, as one exception; each protocol gives it its own shape on the wire."""

from collections.abc import Mapping


class Problem(Exception):
    """A refusal with an HTTP status, a short title that is always the same, and a detail for this case."""

    def __init__(self, status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{title}: {detail}")
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = dict(headers or {})


def busy(detail: str) -> Problem:
    """The server is at a limit; the same request may work in a second."""
    return Problem(503, "The server is full", detail, {"Retry-After": "1"})


def out_of_order(detail: str) -> Problem:
    """The request does not fit the state that the session is in."""
    return Problem(409, "Not now", detail)
