"""What happened in a run, and when: one line of JSON each, in the order of time.

Some lines tell of calls: started, resumed, stopped. Others tell of training: a checkpoint, or what the guard saw. A
resumed run lives through the steps after its checkpoint again, and so through their lines: `rewind` drops them, so that
each stands there once.
"""

import json
import time
from pathlib import Path
from typing import Any

from openmanus_rl.files import drop_cut_off_line, write_text

OF_CALLS = frozenset({"started", "resumed", "restarted", "stopped", "failed"})
"""Kinds that stay whatever is resumed: they happened to a call."""


class EventLog:
    """Appends `{"time": …, "event": kind, …}` lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_cut_off_line(path)

    def append(self, kind: str, **details: Any) -> None:
        """Write down what happened; a kill right afterwards does not lose it."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), "event": kind, **details}, ensure_ascii=False) + "\n")

    def count(self) -> int:
        """Lines so far: what a checkpoint remembers, for `rewind`."""
        return len(self._lines())

    def rewind(self, count: int, also_kept: frozenset[str] = frozenset()) -> None:
        """Drop the lines after the first `count` that tell of training, but for kinds that are `also_kept`."""
        lines = self._lines()
        later = [line for line in lines[count:] if json.loads(line)["event"] in OF_CALLS | also_kept]
        write_text(self.path, "".join(line + "\n" for line in [*lines[:count], *later]))

    def _lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
