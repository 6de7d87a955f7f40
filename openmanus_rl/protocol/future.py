"""A `DataProto` that other workers are still making."""

import concurrent.futures
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from openmanus_rl.protocol.dataproto import DataProto
from openmanus_rl.protocol.errors import DataProtoError


@dataclass(eq=False)
class DataProtoFuture:
    """One future per worker (`concurrent.futures`, or Ray object references), and what becomes of their results.

    The driver passes it on to the next workers without waiting; they wait, collect and take their part.
    """

    collect_fn: Callable[[list[DataProto]], DataProto]
    futures: Sequence[Any]
    dispatch_fn: Callable[[DataProto], DataProto] | None = None

    @staticmethod
    def concat(data: Sequence[Any]) -> "DataProtoFuture":
        """The rows of all results, one after another."""
        return DataProtoFuture(collect_fn=DataProto.concat, futures=data)

    def chunk(self, chunks: int) -> list["DataProtoFuture"]:
        """A future for each of the result's chunks."""
        return [
            DataProtoFuture(self.collect_fn, self.futures, partial(_nth_chunk, index=index, chunks=chunks))
            for index in range(chunks)
        ]

    def get(self, timeout: float | None = None) -> DataProto:
        """Wait for all results, at most `timeout` seconds, and collect them."""
        results = _results_of(self.futures, timeout)
        for index, result in enumerate(results):
            if not isinstance(result, DataProto):
                raise DataProtoError(f"future {index} gave a {type(result).__name__}, not a DataProto")
        collected = self.collect_fn(results)
        return collected if self.dispatch_fn is None else self.dispatch_fn(collected)


def _nth_chunk(data: DataProto, index: int, chunks: int) -> DataProto:
    return data.chunk(chunks)[index]


def _results_of(futures: Sequence[Any], timeout: float | None) -> list[Any]:
    if any(type(future).__module__.partition(".")[0] == "ray" for future in futures):
        import ray  # a laptop has none, and needs none

        results: list[Any] = ray.get(list(futures), timeout=timeout)
        return results
    unfinished = concurrent.futures.wait(futures, timeout).not_done
    if unfinished:
        raise TimeoutError(f"{len(unfinished)} of {len(futures)} results were not there after {timeout} s")
    return [future.result() for future in futures]
