"""Worker groups: one worker class, called as one, whatever number of ranks it has and wherever they run."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.dispatch import Dispatch

Worker = TypeVar("Worker")


class WorkerGroup(Generic[Worker]):
    """Ranks of `worker_cls`. Methods marked with `@dispatch` are called on the group as on one worker.

    `executor="inline"` makes the ranks in this process.
    """

    def __init__(self, worker_cls: type[Worker], ranks: int = 1, executor: str = "inline", **arguments: Any) -> None:
        if executor != "inline":
            raise ValueError(f"there is no executor {executor!r}; workers run inline")
        self.worker_cls = worker_cls
        self.workers = [worker_cls(**arguments) for _ in range(ranks)]

    @property
    def local(self) -> Worker:
        """Rank 0, where it lives in this process: an embedded engine shares its weights."""
        return self.workers[0]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.worker_cls, name, None)
        mode = getattr(method, "dispatch_mode", None)
        if mode is None:
            raise AttributeError(f"{self.worker_cls.__name__}.{name} is not marked with @dispatch")
        return partial(self._call, name, mode)

    def _call(self, name: str, mode: Dispatch, *arguments: Any, **named: Any) -> Any:
        if mode is Dispatch.RANK0:
            return getattr(self.workers[0], name)(*arguments, **named)
        if mode is Dispatch.SAME:
            answers = [getattr(worker, name)(*arguments, **named) for worker in self.workers]
            return answers[0]
        data, *others = arguments
        parts = data.chunk(len(self.workers))
        return DataProto.concat(
            [getattr(worker, name)(part, *others, **named) for worker, part in zip(self.workers, parts, strict=True)]
        )
