"""A search for words in what was said, done and seen: goes on where it stood, for as long as it is given."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openmanus_rl.viewer.episodes import EpisodeTable, Row
from openmanus_rl.viewer.hostile import on_one_line

PATIENCE = 0.25
"""Seconds that one request searches; the next one goes on from there."""


class Search:
    """The rows among `candidates` in whose texts `words` occurs, whatever its case; found as far as was searched.

    Only the part of a line before its tokens is read, and only a line in which the words occur is parsed.
    """

    def __init__(self, table: EpisodeTable, candidates: Sequence[Row], words: str) -> None:
        self.found: list[Row] = []
        self.searched = 0
        self.candidates = candidates
        self._table = table
        self._words = words.casefold()
        # As they stand in JSON; in letters beyond ASCII case is left to the second look.
        in_json = json.dumps(words, ensure_ascii=False)[1:-1]
        self._bytes = max(_ascii_runs(in_json), key=len).lower().encode()

    @property
    def is_done(self) -> bool:
        return self.searched == len(self.candidates)

    def go_on(self, wanted: int, seconds: float = PATIENCE) -> None:
        """Search until `wanted` rows are found, all is searched, or the time is up."""
        deadline = time.monotonic() + seconds
        while not self.is_done and len(self.found) < wanted and time.monotonic() < deadline:
            file = self.candidates[self.searched].file
            with _opened(self._table.directory / file) as descriptor:
                while len(self.found) < wanted and not self.is_done and time.monotonic() < deadline:
                    row = self.candidates[self.searched]
                    if row.file != file:
                        break
                    self.searched += 1
                    if descriptor is not None and self._occurs(os.pread(descriptor, row.entry.head, row.entry.offset)):
                        self.found.append(row)

    def _occurs(self, head: bytes) -> bool:
        if self._bytes not in head.lower():
            return False
        try:
            record = json.loads(head if head.endswith(b"\n") else head + b"}")
        except ValueError:
            return False
        return any(self._words in text.casefold() for text in texts(record))


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """A descriptor of the file; None if the run has removed it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


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
