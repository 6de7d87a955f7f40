"""A worker's files in a checkpoint: written while it goes on, and read by any number of ranks.

Models are plain Hugging Face directories, which rank 0 writes: everybody reads those, and rank 0 gathers the weights
for the engine anyway. Everything else, twice the size of the model, is in `torch.distributed.checkpoint`'s format: each
rank writes the parts that it holds, and nothing is gathered.
"""

import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as parts
from torch import Tensor, distributed
from torch.distributed.checkpoint.api import CheckpointException

from openmanus_rl.workers.optim import Optimiser
from openmanus_rl.workers.parallel import rank, rank_count

# It says so of every save of a single process, where that is what is wanted.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


class Saving:
    """The files that one worker is writing. All its ranks must make it and call its methods in the same order."""

    def __init__(self) -> None:
        # Ranks that write agree among themselves, and must not get between what they exchange in training.
        self._group = distributed.new_group(backend="gloo") if rank_count() > 1 else None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="saving")
        self._under_way: list[Future[Any]] = []

    def begin(self, write: Callable[[], None]) -> None:
        """Run `write` beside the caller, who must not change what it writes."""
        self._under_way.append(self._thread.submit(write))

    def begin_parts(self, tensors: Mapping[str, Tensor], directory: Path) -> None:
        """Write this rank's parts of `tensors`, as they are now, into a directory that all ranks share."""
        future = parts.async_save(
            dict(tensors), checkpoint_id=directory, process_group=self._group, no_dist=self._group is None
        )
        assert isinstance(future, Future), "the copy is made before it returns"
        self._under_way.append(future)

    def read_parts(self, tensors: Mapping[str, Tensor], directory: Path) -> None:
        """Fill `tensors`, sharded as they are, with what any number of ranks has written under their names."""
        _raising_errors(
            lambda: parts.load(
                dict(tensors), checkpoint_id=directory, process_group=self._group, no_dist=self._group is None
            )
        )

    def wait(self) -> None:
        """Until everything that was begun is written; what went wrong is raised."""
        under_way, self._under_way = self._under_way, []
        for future in under_way:
            _raising_errors(future.result)


def begin_training_state(saving: Saving, optimiser: Optimiser, directory: Path) -> None:
    """Write what training goes on with beside the weights: the optimiser's state and every rank's random numbers."""
    saving.begin_parts({**optimiser.tensors(), **_random_state()}, directory)


def read_training_state(saving: Saving, optimiser: Optimiser, directory: Path) -> None:
    """Go on with it; a rank that did not exist when it was written keeps its own random numbers."""
    names = set(parts.FileSystemReader(directory).read_metadata().state_dict_metadata)
    random = {name: state for name, state in _random_state().items() if name in names}
    tensors = optimiser.blank_tensors(names)
    saving.read_parts({**tensors, **random}, directory)
    optimiser.load_tensors(tensors)
    for state in random.values():
        torch.set_rng_state(state)


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in this process's memory; names that share a tensor still do."""
    copies = {id(tensor): tensor.detach().to("cpu", copy=True) for tensor in tensors.values()}
    return {name: copies[id(tensor)] for name, tensor in tensors.items()}


def _raising_errors(work: Callable[[], Any]) -> None:
    """torch's own exception of a failed checkpoint is none that `except Exception` would see."""
    try:
        work()
    except CheckpointException as failed:
        causes = [error for error, _ in failed.failures.values()]
        if isinstance(causes[0], OSError):
            raise causes[0] from failed
        raise RuntimeError(
            f"a part of the checkpoint failed on ranks {sorted(failed.failures)}: {causes[0]}"
        ) from failed


def _random_state() -> dict[str, Tensor]:
    """Under a name of this rank's own."""
    return {f"random/{rank()}": torch.get_rng_state()}
