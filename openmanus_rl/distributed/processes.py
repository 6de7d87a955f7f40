"""What a worker group runs on: processes that are numbered, and in which several roles can live side by side."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any, Protocol

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of one call: by place and by name."""


class Processes(Protocol):
    """Ranks 0 to `count - 1`."""

    @property
    def count(self) -> int:
        """How many ranks there are."""

    def create(self, role: str, worker_cls: type, arguments: dict[str, Any]) -> None:
        """Make a worker of `worker_cls` on every rank; a role is made once."""

    def call(self, role: str, method: str, per_rank: Sequence[Arguments]) -> list[Any]:
        """Call a method on rank 0, 1, … at once, as many as there are `per_rank`; their answers in that order.

        The same object for several ranks travels once.
        """

    def local(self, role: str) -> Any | None:
        """Rank 0's worker where it lives in this process, else None."""

    def close(self) -> None:
        """Let the workers go."""


class ThisProcess:
    """All ranks in the process that asks: no copies, no waiting, and errors as they are raised."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._workers: dict[str, list[Any]] = {}

    def create(self, role: str, worker_cls: type, arguments: dict[str, Any]) -> None:
        self._workers[role] = [worker_cls(**arguments) for _ in range(self.count)]

    def call(self, role: str, method: str, per_rank: Sequence[Arguments]) -> list[Any]:
        workers = self._workers[role][: len(per_rank)]
        answers = [
            getattr(worker, method)(*placed, **named) for worker, (placed, named) in zip(workers, per_rank, strict=True)
        ]
        return [asyncio.run(answer) if inspect.iscoroutine(answer) else answer for answer in answers]

    def local(self, role: str) -> Any | None:
        return self._workers[role][0]

    def close(self) -> None:
        self._workers.clear()
