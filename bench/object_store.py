"""A `DataProto` of 1 GB from the driver to a worker and back, against one copy of its memory.

    python bench/object_store.py

The worker gets it from Ray's object store, writes one number into it and returns it; the driver reads it again. Both
sides can write to what they read. The two are timed in turn; the ratio is the median over the alternations.
"""

import statistics
import time
from collections.abc import Callable

import torch

from openmanus_rl.config.schema import ClusterConfig
from openmanus_rl.distributed.cluster import connected
from openmanus_rl.distributed.ray_processes import RayProcesses
from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.dispatch import Dispatch, dispatch

ALTERNATIONS = 5
GIGABYTES = 1.0
ROWS = 256


class Mirror:
    """A worker that returns what it gets."""

    @dispatch(Dispatch.SPLIT)
    def reflect(self, data: DataProto) -> DataProto:
        """The same rows; the first number of each column is overwritten, which needs memory of its own."""
        for column in data.batch.values():
            column[0, 0] = 1
        return data


def rows(gigabytes: float) -> DataProto:
    """Columns as a training batch has them: token ids, masks, log-probs."""
    length = int(gigabytes * 2**30 / ROWS / 32)
    return DataProto.from_dict(
        {
            "input_ids": torch.randint(2**15, (ROWS, length)),
            "position_ids": torch.arange(length).repeat(ROWS, 1),
            "rollout_log_probs": torch.rand(ROWS, length),
            "advantages": torch.rand(ROWS, length),
            "values": torch.rand(ROWS, length),
            "returns": torch.rand(ROWS, length),
        }
    )


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    torch.set_num_threads(1)
    data = rows(GIGABYTES)
    cluster = ClusterConfig()
    with connected(cluster):
        group = WorkerGroup(Mirror, RayProcesses("main", cluster.pools["main"], cluster), "mirror")
        group.reflect(data)  # maps the store's memory
        pairs = [(seconds(data.batch.clone), seconds(lambda: group.reflect(data))) for _ in range(ALTERNATIONS)]
    copy, there_and_back = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(travel / one for one, travel in pairs)
    size = sum(column.nbytes for column in data.batch.values()) / 2**30
    print(f"{size:.2f} GB: copy {copy:.2f} s, there and back {there_and_back:.2f} s, {ratio:.2f}x")


if __name__ == "__main__":
    main()
