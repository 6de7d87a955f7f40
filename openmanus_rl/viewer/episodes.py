"""All episodes of a run as one table in memory, from the index beside them; files without one are read bit by bit."""

import gc
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from openmanus_rl.errors import UserError
from openmanus_rl.tracking.episode_index import INDEX, EpisodeEntry, EpisodeFile, index_lines, parse_index_line
from openmanus_rl.viewer.tail import Tail

LONGEST_RECORD = 64 << 20
"""Bytes of an episode beyond which it is not shown."""
NOT_EPISODES = frozenset({INDEX, "metrics.jsonl", "events.jsonl"})
"""What else a run directory has under such names, if its episodes lie beside it."""
_NAME = re.compile(r"(?:(?P<kind>[a-z]+)_)?step_(?P<step>\d+)\.jsonl|(?P<other>.+)\.jsonl")


class Row(NamedTuple):
    """An episode in the table: where it is, and what the index says of it."""

    file: str
    kind: str
    step: int
    entry: EpisodeEntry

    def to_dict(self) -> dict[str, Any]:
        said = self.entry._asdict()
        for place in ("offset", "length", "head"):
            said.pop(place)
        return {"file": self.file, "kind": self.kind, "step": self.step, **said}


class EpisodeTable:
    """Rows in the order of their steps. `version` changes with them."""

    def __init__(self, directory: Path, version: int = 0) -> None:
        self.directory = directory
        self.version = version
        self.rows: list[Row] = []
        self.waiting: list[str] = []
        """Files that are not indexed yet."""
        self._index = Tail(directory / INDEX)
        self._files: dict[str, list[Row]] = {}
        self._told: dict[str, EpisodeFile] = {}
        self._sizes: dict[str, int] = {}
        self._problems: dict[str, list[str]] = {}
        self._broken_index_lines = 0
        self._seen_at: float | None = None

    @property
    def problems(self) -> list[str]:
        """What could not be read, in words."""
        found = [problem for of_file in self._problems.values() for problem in of_file]
        if self._broken_index_lines:
            found.append(f"{INDEX}: {self._broken_index_lines} lines are not an index's; their files are read instead")
        return found

    def refresh(self, seconds: float = 0.2) -> None:
        """Take in what is new; files without an index are read for about so long, the rest waits for the next time."""
        with _no_collection():
            self._refresh(seconds)

    def _refresh(self, seconds: float) -> None:
        replaced, lines = self._index.new_lines()
        if replaced:
            self._told.clear()
        for line in lines:
            told = parse_index_line(line)
            if told is None:
                self._broken_index_lines += 1
            else:
                self._told[told.name] = told
        changed = self._look_at_directory() if lines or self._directory_changed() else False
        deadline = time.monotonic() + seconds
        while self.waiting and time.monotonic() < deadline:
            changed |= self._read_file(self.waiting.pop())
        if changed:
            files = sorted(self._files.values(), key=lambda rows: (rows[0].step, rows[0].kind) if rows else (0, ""))
            self.rows = [row for rows in files for row in rows]
            self.version += 1

    def of_file(self, file: str) -> list[Row]:
        """The episodes of one file."""
        return self._files.get(file, [])

    def find(self, file: str, number: int) -> Row:
        """The episode with this place in this file."""
        for row in self.of_file(file):
            if row.entry.number == number:
                return row
        raise UserError(f"there is no episode {number} in {file}.")

    def record(self, row: Row) -> dict[str, Any]:
        """What was written of an episode."""
        which = f"episode {row.entry.number} of {row.file}"
        if row.entry.length > LONGEST_RECORD:
            raise UserError(f"{which} has {row.entry.length >> 20} MB, which is too much for a page.")
        try:
            with (self.directory / row.file).open("rb") as file:
                file.seek(row.entry.offset)
                record: dict[str, Any] = json.loads(file.read(row.entry.length))
        except OSError as error:
            raise UserError(f"{which} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise UserError(f"{which} cannot be read; its file may have been written anew.") from error
        return record

    def facets(self) -> dict[str, dict[str, int]]:
        """How many episodes there are of each kind, world, difficulty and end."""
        return {
            "kind": dict(Counter(row.kind for row in self.rows)),
            "env": dict(Counter(row.entry.env for row in self.rows)),
            "difficulty": dict(Counter(row.entry.difficulty for row in self.rows if row.entry.difficulty)),
            "stop_reason": dict(Counter(row.entry.stop_reason for row in self.rows)),
        }

    def _directory_changed(self) -> bool:
        changed_at = _modified_at(self.directory)
        if changed_at is None:
            return self._seen_at is not None
        # A directory that changed within the clock's grain may change again without showing it.
        return changed_at != self._seen_at or time.time() - changed_at < 1

    def _look_at_directory(self) -> bool:
        """Compare the files that are there with what is known of them."""
        changed = False
        self._seen_at = _modified_at(self.directory)
        present = dict(_episode_files(self.directory))
        for name in set(self._sizes) - set(present):
            del self._sizes[name], self._files[name]
            self._problems.pop(name, None)
            changed = True
        self.waiting = [name for name in self.waiting if name in present]
        for name, size in present.items():
            told = self._told.pop(name, None)
            if told is not None and told.size == size:
                self._take(told)
                self._problems.pop(name, None)
                changed = True
            elif self._sizes.get(name) != size and name not in self.waiting:
                self.waiting.append(name)
        self.waiting.sort()
        return changed

    def _read_file(self, name: str) -> bool:
        try:
            with (self.directory / name).open("rb") as file:
                found, problems = index_lines(name, file)
        except OSError as error:
            self._problems[name] = [f"{name}: {error.strerror}"]
            return False
        self._problems[name] = problems[:3] + ([f"{name}: and {len(problems) - 3} more"] if len(problems) > 3 else [])
        self._take(found)
        return True

    def _take(self, file: EpisodeFile) -> None:
        kind, step = _kind_and_step(file.name)
        self._sizes[file.name] = file.size
        self._files[file.name] = [Row(file.name, kind, step, entry) for entry in file.entries]


@contextmanager
def _no_collection() -> Iterator[None]:
    """A hundred thousand rows are nobody's garbage; looking through them again and again takes half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _modified_at(directory: Path) -> float | None:
    try:
        return directory.stat().st_mtime
    except OSError:
        return None


def _episode_files(directory: Path) -> Iterator[tuple[str, int]]:
    """Names and sizes; what is removed between two looks is not there."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith(".jsonl") and not entry.name.startswith(".") and entry.name not in NOT_EPISODES:
                with suppress(OSError):
                    yield entry.name, entry.stat().st_size


def _kind_and_step(name: str) -> tuple[str, int]:
    """`train_step_000012.jsonl` is of kind train and step 12; another name is its own kind."""
    match = _NAME.fullmatch(name)
    if match is None or match["other"] is not None:
        return (match["other"] if match else name), 0
    return match["kind"] or "episodes", int(match["step"])
