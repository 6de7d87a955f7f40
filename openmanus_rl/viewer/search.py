"""A search for words in what was said, done and seen: goes on where it stood, for as long as it is given."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Any

from openmanus_rl.viewer.episodes import EpisodeTable, Row
from openmanus_rl.viewer.hostile import on_one_line

PATIENCE = 0.15
"""Seconds that one request searches; the next one goes on from there."""
AHEAD = 0.08
"""Seconds that one request reads ahead: whoever has typed a word meanwhile waits no longer than that."""
PIECE = 64
"""Episodes of one file that are read and looked through together."""
WORTH_SKIPPING = 4
"""Lines of which the texts are less than one part in so many are read in parts, others whole."""
REMEMBERED = 256 << 20
"""Bytes of text that are kept for the searches to come: people type a word letter by letter."""


class TextMemory:
    """The texts of pieces that were searched, in lower case."""

    def __init__(self, room: int = REMEMBERED) -> None:
        self.is_full = False
        self._room = room
        self._kept: dict[tuple[str, int], tuple[list[Row], bytes]] = {}

    def get(self, piece: list[Row]) -> bytes | None:
        """The text of just these rows, as they are in the table now."""
        rows, text = self._kept.get(_place(piece), ([], b""))
        return text if rows == piece else None

    def put(self, piece: list[Row], text: bytes) -> None:
        """Keep it, if there is room."""
        _, before = self._kept.pop(_place(piece), ([], b""))
        self._room += len(before)
        if len(text) <= self._room:
            self._room -= len(text)
            self._kept[_place(piece)] = (piece, text)
        else:
            self.is_full = True


class Search:
    """The rows among `candidates` in whose texts `words` occurs, whatever its case; found as far as was searched.

    Only the part of a line before its tokens is read, and only a line in which the words may occur is parsed.
    """

    def __init__(
        self, table: EpisodeTable, candidates: Sequence[Row], words: str, memory: TextMemory | None = None
    ) -> None:
        self.found: list[Row] = []
        self.searched = 0
        self.candidates = candidates
        self._pieces = _pieces(candidates)
        self._directory = os.fspath(table.directory)
        self._memory = memory or TextMemory()
        self._words = words.casefold()
        # As they stand in JSON; in letters beyond ASCII case is left to the second look.
        in_json = json.dumps(words, ensure_ascii=False)[1:-1]
        self._bytes = max(_ascii_runs(in_json), key=len).lower().encode()

    @property
    def is_done(self) -> bool:
        return self.searched == len(self.candidates)

    def read_ahead(self, seconds: float = AHEAD) -> bool:
        """Read into memory what a search of these rows will look through; whether that is all, or all that fits."""
        deadline = time.monotonic() + seconds
        while not self.is_done and not self._memory.is_full and time.monotonic() < deadline:
            piece = next(self._pieces)
            self._lower_text(piece)
            self.searched += len(piece)
        return self.is_done or self._memory.is_full

    def go_on(self, wanted: int, seconds: float = PATIENCE) -> None:
        """Search until `wanted` rows are found, all is searched, or the time is up."""
        deadline = time.monotonic() + seconds
        while not self.is_done and len(self.found) < wanted and time.monotonic() < deadline:
            piece = next(self._pieces)
            if self._bytes in self._lower_text(piece):
                heads = self._heads(piece)
                self.found += [row for row, head in zip(piece, heads, strict=True) if self._occurs(head)]
            self.searched += len(piece)

    def _lower_text(self, piece: list[Row]) -> bytes:
        text = self._memory.get(piece)
        if text is None:
            text = b"".join(self._heads(piece)).lower()
            self._memory.put(piece, text)
        return text

    def _heads(self, piece: list[Row]) -> list[bytes]:
        """The lines of one file up to their tokens; empty if the run has removed it."""
        try:
            descriptor = os.open(f"{self._directory}/{piece[0].file}", os.O_RDONLY)
        except OSError:
            return [b""] * len(piece)
        places = [(row.entry.offset, row.entry.head) for row in piece]
        start, end = min(places)[0], max(places)[0] + max(places)[1]
        try:
            if end - start > WORTH_SKIPPING * sum(head for _, head in places):
                return [os.pread(descriptor, head, offset) for offset, head in places]
            span = os.pread(descriptor, end - start, start)
            return [span[offset - start : offset - start + head] for offset, head in places]
        finally:
            os.close(descriptor)

    def _occurs(self, head: bytes) -> bool:
        if self._bytes not in head.lower():
            return False
        try:
            record = json.loads(head if head.endswith(b"\n") else head + b"}")
            return any(self._words in text.casefold() for text in texts(record))
        except (ValueError, AttributeError, TypeError):  # what only looks like an episode
            return False


def _pieces(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows in order, those of one file together, `PIECE` at most."""
    for _, of_file in groupby(rows, attrgetter("file")):
        while piece := list(islice(of_file, PIECE)):
            yield piece


def _place(piece: list[Row]) -> tuple[str, int]:
    return piece[0].file, piece[0].entry.number


def texts(record: dict[str, Any]) -> Iterator[str]:
    """What is searched: the task, and what was said, done and seen."""
    yield str(record.get("item_id", ""))
    yield str((record.get("task") or {}).get("prompt", ""))
    yield str(record.get("failure", ""))
    for turn in record.get("turns", []):
        for name in ("text", "action", "observation", "invalid_reason"):
            yield str(turn.get(name) or "")


def snippet(record: dict[str, Any], words: str, around: int = 60) -> str:
    """Where the words occur first, on one line, with what stands around them."""
    for text in texts(record):
        at = text.casefold().find(words.casefold())
        if at >= 0:
            start = max(0, at - around)
            return ("… " if start else "") + on_one_line(text[start:], len(words) + 2 * around)
    return ""


def _ascii_runs(text: str) -> list[str]:
    return "".join(letter if letter.isascii() else "\0" for letter in text).split("\0")
