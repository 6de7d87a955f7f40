"""A database in a process of its own, which is killed when a query outlives its time.

Within a row, and while it plans a query, SQLite cannot be interrupted: one call of `trim` on two long texts takes
minutes. A process can be ended. It is forked at the first query and answers all of an episode.
"""

import gc
import os
import resource
import signal
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from openmanus_rl.envs.sqlgym.runner import Bounds, QueryRefused, ReadOnlyDatabase, Row

GRACE_SECONDS = 0.5
"""A query that SQLite can interrupt ends by itself within this."""


class QueryProcess:
    """Runs queries on one database. A query that is ended takes the process with it; the next one starts another."""

    def __init__(self, source: bytes | Path, bounds: Bounds) -> None:
        self._source = source
        self._bounds = bounds
        self._pid: int | None = None
        self._pipe: Connection | None = None

    def run(self, sql: str) -> list[Row]:
        """The rows of one query, or `QueryRefused`."""
        pipe = self._pipe or self._start()
        try:
            pipe.send(sql)
            if not pipe.poll(self._bounds.seconds + GRACE_SECONDS):
                self.close()
                raise QueryRefused(f"the query took longer than {self._bounds.seconds:g} s")
            rows, refusal = pipe.recv()
        except (OSError, EOFError) as error:
            self.close()
            raise QueryRefused("the query took more memory or time than it may") from error
        if refusal is not None:
            raise QueryRefused(refusal)
        answer: list[Row] = rows
        return answer

    def close(self) -> None:
        """End the process; twice is fine."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None

    def __del__(self) -> None:
        self.close()

    def _start(self) -> Connection:
        self._pipe, theirs = Pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                _answer(self._source, self._bounds, theirs)
            finally:
                os._exit(1)
        theirs.close()
        return self._pipe


def _answer(source: bytes | Path, bounds: Bounds, pipe: Connection) -> NoReturn:
    """The process's whole life: answer queries until the world is gone."""
    gc.disable()  # nothing here is worth copying the parent's memory for
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _limit(resource.RLIMIT_AS, taken + bounds.memory_bytes)
    database = ReadOnlyDatabase(source, bounds)
    while True:
        try:
            sql = pipe.recv()
        except EOFError:
            os._exit(0)
        # Should the world be killed meanwhile, nobody else ends the query.
        _limit(resource.RLIMIT_CPU, int(sum(os.times()[:2]) + bounds.seconds + GRACE_SECONDS) + 2)
        try:
            pipe.send((database.run(sql), None))
        except QueryRefused as refusal:
            pipe.send((None, str(refusal)))


def _limit(what: int, soft: int) -> None:
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
