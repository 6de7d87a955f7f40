"""Running somebody's SQL without harm: read-only, one statement, bounded in time, rows and bytes.

SQLite looks at the clock between rows only: `QueryProcess` ends what does not come that far.
"""

import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

from openmanus_rl.errors import UserError

Row = tuple[Any, ...]

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_REFUSED_FUNCTIONS = {"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}
_OPERATIONS_BETWEEN_LOOKS = 1_000
_WIDE_FIELD = re.compile(r"\*|\d{5}")
"""A width that comes from an argument, or one of five digits: SQLite may fill it for minutes, and cannot be stopped."""


@dataclass(frozen=True)
class Bounds:
    """What one query may use."""

    seconds: float = 5.0
    rows: int = 10_000
    answer_bytes: int = 8_000_000
    value_bytes: int = 200_000
    """The longest text that may come about on the way."""
    sql_bytes: int = 20_000
    memory_bytes: int = 512 << 20
    """What the process of a query may take beyond what it starts with."""


class QueryRefused(Exception):
    """Why there is no answer: SQLite's own words, or the bound that was met."""


class ReadOnlyDatabase:
    """A database that can only be read."""

    def __init__(self, source: bytes | Path, bounds: Bounds) -> None:
        self._connection = _open(source)
        self._aside = sqlite3.connect(":memory:", check_same_thread=False)
        self._bounds = bounds
        self._deadline = 0.0
        self._connection.text_factory = lambda read: read.decode("utf-8", "replace")
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bounds.value_bytes)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, bounds.sql_bytes)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for name in ("printf", "format"):
            self._connection.create_function(name, -1, self._bounded_printf, deterministic=True)
        self._connection.set_authorizer(_authorize)
        self._connection.set_progress_handler(self._look_at_clock, _OPERATIONS_BETWEEN_LOOKS)

    def run(self, sql: str) -> list[Row]:
        """The rows of one query, or `QueryRefused`."""
        bounds = self._bounds
        self._deadline = time.monotonic() + bounds.seconds
        rows: list[Row] = []
        size = 0
        try:
            for row in self._connection.execute(sql):
                rows.append(row)
                size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
                if len(rows) > bounds.rows or size > bounds.answer_bytes:
                    raise QueryRefused(
                        f"the answer is too large: at most {bounds.rows} rows and {bounds.answer_bytes} bytes"
                    )
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise QueryRefused(f"the query took longer than {bounds.seconds:g} s") from error
            raise QueryRefused(str(error)) from error
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # ValueError: text that is no UTF-8
            raise QueryRefused(str(error)) from error
        return rows

    def close(self) -> None:
        self._connection.close()
        self._aside.close()

    def _bounded_printf(self, form: Any = None, *values: Any) -> Any:
        """SQLite's own printf, for fields of an ordinary width."""
        if isinstance(form, str) and _WIDE_FIELD.search(form):
            raise QueryRefused("the field is too wide")
        places = ", ".join("?" * (1 + len(values)))
        return self._aside.execute(f"SELECT printf({places})", (form, *values)).fetchone()[0]

    def _look_at_clock(self) -> bool:
        return time.monotonic() > self._deadline


def definitions(source: bytes | Path) -> dict[str, str]:
    """Each table's name and the statement that made it."""
    listed = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    with closing(_open(source)) as connection:
        try:
            return dict(connection.execute(listed).fetchall())
        except sqlite3.DatabaseError as error:
            raise UserError(f"sqlgym: {source!s} cannot be read: {error}.", "Is the file whole?") from error


def _open(source: bytes | Path) -> sqlite3.Connection:
    if isinstance(source, bytes):
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.deserialize(source)
        return connection
    return sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Reading only: no writes, no ATTACH, no PRAGMA, no extension."""
    if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def same_answer(given: Sequence[Row], right: Sequence[Row], in_order: bool) -> bool:
    """Whether two results are the same rows: as often, floats nearly equal, and in the same order if that counts."""
    if len(given) != len(right):
        return False
    if not in_order:
        given, right = sorted(given, key=_sort_key), sorted(right, key=_sort_key)
    return all(_same_row(one, other) for one, other in zip(given, right, strict=True))


def is_ordered(sql: str) -> bool:
    """Whether the query itself, and not one inside it, has an ORDER BY."""
    bare = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
    while (outer := re.sub(r"\([^()]*\)", " ", bare)) != bare:
        bare = outer
    return re.search(r"\border\s+by\b", bare, re.IGNORECASE) is not None


def _same_row(one: Row, other: Row) -> bool:
    return len(one) == len(other) and all(_same_value(*pair) for pair in zip(one, other, strict=True))


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return bool(one == other)


def _sort_key(row: Row) -> list[tuple[int, Any]]:
    """Rows of any types in an order in which nearly equal ones lie side by side."""
    return [
        (0, 0)
        if value is None
        else (1, float(f"{value:.7g}"))
        if isinstance(value, int | float)
        else (2, value)
        if isinstance(value, str)
        else (3, value)
        for value in row
    ]
