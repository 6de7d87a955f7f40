"""Worker groups: one worker class, called as one, whatever number of ranks it has and wherever they run."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from openmanus_rl.distributed.processes import Processes
from openmanus_rl.protocol import DataProto, DataProtoError
from openmanus_rl.protocol.concat import concat_meta_info
from openmanus_rl.workers.balance import shares
from openmanus_rl.workers.dispatch import Dispatch

Worker = TypeVar("Worker")


class WorkerGroup(Generic[Worker]):
    """A worker of `worker_cls` on every rank of `processes`, under the name of its role.

    Methods marked with `@dispatch` are called on the group as on one worker.
    """

    def __init__(self, worker_cls: type[Worker], processes: Processes, role: str, **arguments: Any) -> None:
        self.worker_cls = worker_cls
        self.processes = processes
        self.role = role
        processes.create(role, worker_cls, arguments)

    @property
    def local(self) -> Worker | None:
        """Rank 0, where it lives in this process: an embedded engine shares its weights."""
        return self.processes.local(self.role)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.worker_cls, name, None)
        mode = getattr(method, "dispatch_mode", None)
        if mode is None:
            raise AttributeError(f"{self.worker_cls.__name__}.{name} is not marked with @dispatch")
        return partial(self._call, name, mode)

    def _call(self, name: str, mode: Dispatch, *arguments: Any, **named: Any) -> Any:
        if mode is Dispatch.SPLIT:
            return self._split(name, *arguments, **named)
        ranks = 1 if mode is Dispatch.RANK0 else self.processes.count
        return self.processes.call(self.role, name, [(arguments, named)] * ranks)[0]

    def _split(self, name: str, data: DataProto, *others: Any, **named: Any) -> DataProto:
        """Each rank gets some rows; their answers in the order of `data`, `metrics` as a list of each rank's."""
        if self.processes.count == 1:
            answer = self.processes.call(self.role, name, [((data, *others), named)])[0]
            return type(answer)(answer.batch, answer.non_tensor_batch, concat_meta_info([answer.meta_info]))
        parts, positions = _divided(data, self.processes.count)
        answers = self.processes.call(self.role, name, [((part, *others), named) for part in parts])
        joined = DataProto.concat(answers)
        if not len(joined):
            return joined
        if len(joined) != len(data):
            raise DataProtoError(f"{self.role}.{name} answered with {len(joined)} rows for {len(data)}")
        return joined.select_idxs(np.argsort(positions))


def _divided(data: DataProto, ranks: int) -> tuple[list[DataProto], np.ndarray]:
    """The rows of each rank, and where they stood: equal work where a row's tokens are known, else equal counts."""
    if data.batch is None or "attention_mask" not in data.batch:
        return data.chunk(ranks), np.arange(len(data))
    divided = [np.array(share, dtype=np.int64) for share in shares(data, ranks)]
    return [data.select_idxs(share) for share in divided], np.concatenate(divided)
