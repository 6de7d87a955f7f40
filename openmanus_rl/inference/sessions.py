"""Sessions and the rows of the cache they own: who sits where, what can be reused, who has to go.

A session keeps its row between its turns. When rows run out, the idle session unused for longest loses its own.
"""

from dataclasses import dataclass, field
from typing import Any

from openmanus_rl.inference.base import Completion, FinishReason, SamplingParams
from openmanus_rl.inference.kv_cache import SlotCache


@dataclass(eq=False)
class Request:
    """One call of `generate`: `ids` is the prompt and grows by what is sampled."""

    session: str
    ids: list[int]
    sampling: SamplingParams
    seed: int
    deadline: float
    receiver: Any
    """Whoever waits for the outcome; the scheduler hands it back with it."""
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def completion(self, reason: FinishReason) -> Completion:
        """What was sampled so far, and why it ends here."""
        return Completion(self.ids[len(self.ids) - len(self.log_probs) :], self.log_probs, self.versions, reason)


@dataclass(eq=False)
class Session:
    """The owner of a row: the keys and values of the first `cached` of `ids` are there."""

    name: str
    row: int
    ids: list[int] = field(default_factory=list)
    cached: int = 0
    request: Request | None = None
    """The request that runs; None while the session is idle between turns."""

    @property
    def running(self) -> Request:
        assert self.request is not None, f"session {self.name!r} is idle"
        return self.request


class SessionTable:
    """All sessions by name and by row, and the order in which they were last used."""

    def __init__(self, cache: SlotCache, max_sessions: int) -> None:
        self._cache = cache
        self._max_sessions = max_sessions
        self._by_name: dict[str, Session] = {}
        """The least recently used first."""
        self._by_row: list[Session | None] = []

    def start(self, request: Request) -> Session | None:
        """The request's session with a row, knowing how much of its tokens is cached; None if every row is in use."""
        session = self._by_name.get(request.session) or self._new_session(request.session)
        if session is None:
            return None
        known = common_prefix(session.ids, request.ids)
        # The last token is always computed: its logits are the first that are sampled from.
        session.cached = min(session.cached, known, len(request.ids) - 1)
        session.ids = request.ids
        session.request = request
        self._mark_used(session)
        return session

    def stop(self, session: Session) -> None:
        """The session's request has ended; it keeps its row for the next turn."""
        session.request = None
        self._mark_used(session)

    def remove(self, name: str) -> None:
        """Free the row of a session that runs nothing; an unknown name is no error."""
        session = self._by_name.pop(name, None)
        if session is not None:
            self._by_row[session.row] = None

    def remove_idle(self) -> None:
        for name in [name for name, session in self._by_name.items() if session.request is None]:
            self.remove(name)

    def remove_all(self) -> None:
        self._by_name.clear()
        self._by_row.clear()

    def at(self, row: int) -> Session | None:
        return self._by_row[row]

    def compact(self, sessions: list[Session]) -> None:
        """Move these sessions into the lowest rows, in exchange with whoever is there."""
        members = set(sessions)
        holes = [row for row in range(len(sessions)) if self._by_row[row] not in members]
        movers = [session for session in sessions if session.row >= len(sessions)]
        for session, hole in zip(movers, holes, strict=True):
            self._exchange(session, hole)

    def _exchange(self, session: Session, row: int) -> None:
        other, old_row = self._by_row[row], session.row
        if other is None:
            self._cache.copy_row(old_row, row, session.cached)
        else:
            self._cache.swap_rows(old_row, row, max(session.cached, other.cached))
            other.row = old_row
        session.row = row
        self._by_row[row], self._by_row[old_row] = session, other

    def _new_session(self, name: str) -> Session | None:
        row = self._free_row()
        if row is None:
            return None
        session = self._by_name[name] = self._by_row[row] = Session(name, row)
        return session

    def _free_row(self) -> int | None:
        """The lowest empty row, else a new one, else that of the idle session unused for longest."""
        if None in self._by_row:
            return self._by_row.index(None)
        if len(self._by_row) < self._max_sessions:
            self._by_row.append(None)
            return len(self._by_row) - 1
        idle = next((session for session in self._by_name.values() if session.request is None), None)
        if idle is None:
            return None
        self.remove(idle.name)
        return idle.row

    def _mark_used(self, session: Session) -> None:
        self._by_name[session.name] = self._by_name.pop(session.name)


def common_prefix(a: list[int], b: list[int]) -> int:
    """How many tokens the two lists have in common from the start."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(index for index in range(shorter) if a[index] != b[index])
