"""Scheduling in fixed shapes: the bits of what a request samples depend on weights, prompt, sampling and seed alone.

A sum of floating-point numbers depends on the shape of the matrices it is part of. So a forward here has one of a few
shapes, whoever takes part in it:

- It computes a fixed number of rows. A row without work computes a token into a place that nobody reads.
- It sees a number of keys that follows from the positions of its tokens.
- A prompt is computed in chunks that begin at multiples of `CHUNK`, up to its last token; from there on it is one token
  at a time. A later turn computes anew what an earlier one sampled: a prompt's keys always come from chunks.

What is left is the row that a request happens to sit in. Whether all rows of a forward compute alike is tried out
before the first request, with fewer rows until they do.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from openmanus_rl.inference.kv_cache import Placement, SlotCache
from openmanus_rl.inference.scheduler import Scheduler
from openmanus_rl.inference.sessions import Session, SessionTable

MOST_ROWS = 16
CHUNK = 16
SHORTEST = 128
"""Keys in view of the first tokens; twice as many where they do not suffice, and so on."""


@dataclass(frozen=True)
class _Part:
    """Neighbouring tokens of one row."""

    row: int
    start: int
    """The position of the first."""
    ids: list[int]


class FixedShapeScheduler(Scheduler):
    """Moves requests forward in forwards of fixed shapes; `settle_rows` comes before the first request."""

    def __init__(self, model: torch.nn.Module, *, max_sessions: int, max_context: int) -> None:
        super().__init__(model, max_sessions=max_sessions, max_context=max_context, prefill_tokens=CHUNK)
        self._longest = _next_multiple(max_context, CHUNK)
        """The most keys that a forward sees. Behind them lies what nobody reads."""
        self._capacity = self._longest + CHUNK
        self._cache = SlotCache(_next_multiple(max_sessions, MOST_ROWS), self._capacity)
        self._sessions = SessionTable(self._cache, max_sessions)
        self._rows = MOST_ROWS

    def settle_rows(self) -> None:
        """Find the largest number of rows that all compute the same bits from the same tokens, on this machine."""
        while self._rows > 1 and not self._rows_agree():
            self._rows //= 2
        self._cache.clear()

    def _rows_agree(self) -> bool:
        length = SHORTEST
        while True:
            end = min(length, self._max_context)
            start = (end - 1) // CHUNK * CHUNK
            tokens = [token % self._vocabulary for token in range(1, end - start + 1)]
            for position, ids, width in ((start, tokens, CHUNK), (end - 1, tokens[:1], 1)):
                logits_RV = self._compute([_Part(row, position, ids) for row in range(self._rows)], width)
                if not torch.equal(logits_RV, logits_RV[:1].expand_as(logits_RV)):
                    return False
                if not self._cache.rows_are_equal(self._rows):
                    return False
            if length >= self._max_context:
                return True
            length *= 2

    @property
    def _vocabulary(self) -> int:
        embeddings = self._model.get_input_embeddings()  # type: ignore[operator]
        return int(embeddings.weight.shape[0])

    def _prefill(self) -> None:
        """The next chunk of every prompt that is not computed yet."""
        for sessions in self._together(self._prefilling, lambda session: _chunk(session)[1] - 1):
            chunks = [_chunk(session) for session in sessions]
            parts = [
                _Part(session.row, start, session.ids[start:end])
                for session, (start, end) in zip(sessions, chunks, strict=True)
            ]
            self._compute(parts, width=CHUNK)
            for session, (_, end) in zip(sessions, chunks, strict=True):
                session.cached = end
        self._decoding += [session for session in self._prefilling if session.cached == len(session.ids) - 1]
        self._prefilling = [session for session in self._prefilling if session.cached < len(session.ids) - 1]

    def _decode(self) -> None:
        """One more token for every session that samples. What that computes is not `cached`: it came from no chunk."""
        for sessions in self._together(self._decoding, lambda session: len(session.ids) - 1):
            parts = [_Part(session.row, len(session.ids) - 1, session.ids[-1:]) for session in sessions]
            logits_RV = self._compute(parts, width=1)
            by_place = {session.row % self._rows: session for session in sessions}
            sampler = self._sampler([by_place.get(place, sessions[0]) for place in range(self._rows)])
            tokens_R, log_probs_R = sampler(logits_RV)
            places = [session.row % self._rows for session in sessions]
            self._accept(sessions, tokens_R[places].tolist(), log_probs_R[places].tolist())

    def _together(self, sessions: list[Session], last: Callable[[Session], int]) -> Iterator[list[Session]]:
        """The sessions by forwards: neighbouring rows with the same number of keys in view of their `last` token."""
        forwards: dict[tuple[int, int], list[Session]] = {}
        for session in sessions:
            forwards.setdefault((session.row // self._rows, self._keys(last(session))), []).append(session)
        yield from forwards.values()

    def _keys(self, position: int) -> int:
        """How many keys are in view of a token, whoever else is in the batch."""
        keys = SHORTEST
        while keys <= position:
            keys *= 2
        return min(keys, self._longest)

    def _compute(self, parts: Sequence[_Part], width: int) -> torch.Tensor:
        """One forward of all rows around these; the logits of the last column."""
        first = parts[0].row // self._rows * self._rows
        ids = [[0] * width for _ in range(self._rows)]
        positions = [[0] * width for _ in range(self._rows)]
        places = [list(range(self._longest, self._longest + width)) for _ in range(self._rows)]
        for part in parts:
            row, end = part.row - first, part.start + len(part.ids)
            ids[row][: len(part.ids)] = part.ids
            positions[row][: len(part.ids)] = places[row][: len(part.ids)] = range(part.start, end)
        self._cache.reserve(first + self._rows, self._capacity)
        keys = self._keys(max(part.start + len(part.ids) for part in parts) - 1)
        places_RT = torch.tensor(places, device=self._device)
        placement = Placement(slice(first, first + self._rows), places_RT, length=keys, start=None)
        positions_RT = torch.tensor(positions, device=self._device)
        return self._forward(torch.tensor(ids, device=self._device), placement, positions_RT)


def _chunk(session: Session) -> tuple[int, int]:
    """Where the next chunk begins and ends; a cached part of it is computed again, to the same bits."""
    start = session.cached // CHUNK * CHUNK
    return start, min(start + CHUNK, len(session.ids) - 1)


def _next_multiple(number: int, of: int) -> int:
    return -(-number // of) * of
