"""Inference engines in the processes of a Ray pool, and how lost ones come back."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import ray
import torch

from openmanus_rl.distributed.errors import RankLost
from openmanus_rl.distributed.host import Stored
from openmanus_rl.distributed.processes import Arguments
from openmanus_rl.distributed.ray_processes import GONE, PULSE_SECONDS, RayProcesses, value_of
from openmanus_rl.inference.base import Completion, EngineLost, InferenceEngine, SamplingParams
from openmanus_rl.inference.replicas import ReplicatedEngine

ROLE = "rollout"


class RayEngine(InferenceEngine):
    """The engine of one rank, seen from the driver. A process that is gone or says nothing is an `EngineLost`."""

    def __init__(self, processes: RayProcesses, rank: int, version: int = 0) -> None:
        self._rank = rank
        self._host = processes.ranks[rank].handle
        self._place = processes.ranks[rank].place
        self._version = version

    @property
    def version(self) -> int:
        return self._version

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: SamplingParams,
        *,
        seed: int,
        session: str,
        deadline: float | None = None,
    ) -> Completion:
        seconds = None if deadline is None else deadline - time.monotonic()
        try:
            return cast(Completion, await self._ask("generate", ((prompt_ids, sampling, seed, session, seconds), {})))
        except asyncio.CancelledError:
            self.abort(session)
            raise

    async def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        return cast(list[float], await self._ask("score", ((ids, temperature), {})))

    def abort(self, session: str) -> None:
        self._host.call.remote(ROLE, "abort", ((session,), {}))

    def release(self, session: str) -> None:
        self._host.call.remote(ROLE, "release", ((session,), {}))

    async def update_weights(self, source: dict[str, torch.Tensor] | Stored | None, version: int) -> None:
        """`source` may be in the object store already (see `stored_weights`)."""
        await self._ask("update_weights", source if isinstance(source, list) else stored_weights(source, version))
        self._version = version

    async def close(self) -> None:
        await self._ask("close", ((), {}))

    async def _ask(self, method: str, arguments: Arguments | Stored) -> Any:
        answer = asyncio.wrap_future(self._host.call.remote(ROLE, method, arguments).future())
        try:
            while not (await asyncio.wait([answer], timeout=PULSE_SECONDS))[0]:
                pulse = asyncio.wrap_future(self._host.is_alive.remote().future())
                if not (await asyncio.wait([pulse], timeout=PULSE_SECONDS))[0]:
                    raise EngineLost(f"{self} gave no sign of life for {PULSE_SECONDS:g} s")
            return value_of(answer.result(), ROLE, method, self._rank, self._place)
        except GONE as error:
            raise EngineLost(f"{self} is gone: {error}") from error
        finally:
            answer.cancel()

    def __str__(self) -> str:
        return f"rollout engine {self._rank} (node {self._place})"


class RayRollout(ReplicatedEngine):
    """An engine on every rank of a pool. `note` is told when one was lost, and when it is back."""

    def __init__(
        self, worker_cls: type, processes: RayProcesses, note: Callable[[str], None], **arguments: Any
    ) -> None:
        processes.create(ROLE, worker_cls, arguments)
        super().__init__([RayEngine(processes, rank) for rank in range(processes.count)])
        self._processes = processes
        self._note = note
        self._weights: Stored | None = None
        self._without_room: set[int] = set()

    async def update_weights(self, source: dict[str, torch.Tensor] | None, version: int) -> None:
        """They go into the object store once; all engines read the same object."""
        self._weights = stored_weights(source, version)
        await super().update_weights(cast(dict[str, torch.Tensor], self._weights), version)

    def repair(self) -> None:
        """Between two steps: bring lost engines back, with the present weights.

        Where the cluster has no room for one, the others go on and it is tried again the next time. If none is left,
        this waits for room as long as `cluster.start_timeout`; then it is an `EngineLost`. Engines that share their
        process with a role that learns cannot come back alone: that is a `RankLost`.
        """
        self._find_lost()
        for index in self.lost:
            self._bring_back(index)
        if len(self.lost) == len(self.engines):
            raise EngineLost(f"none of {len(self.engines)} rollout engines could be brought back")

    def _find_lost(self) -> None:
        """An engine that died while nobody called it is lost too, and so is one that says nothing."""
        engines = {index: engine for index, engine in enumerate(self.engines) if index not in self.lost}
        pulses = {self._processes.ranks[index].handle.is_alive.remote(): index for index in engines}
        silent = ray.wait(list(pulses), num_returns=len(pulses), timeout=PULSE_SECONDS)[1] if pulses else []
        for ref, index in pulses.items():
            if ref in silent or not _succeeded(ref):
                self._lose(index, engines[index])

    def _bring_back(self, index: int) -> None:
        began = time.monotonic()
        left = len(self.engines) - len(self.lost)
        try:
            if not self._processes.restart(index, wait_for_room=left == 0):
                if index not in self._without_room:
                    self._note(f"{self.engines[index]} is lost and the cluster has no room for another: {left} go on")
                self._without_room.add(index)
                return
            if self._weights is not None:
                self._processes.call_on(index, ROLE, "update_weights", self._weights)
        except RankLost as error:
            if not self._processes.independent:
                raise
            self._note(f"{self.engines[index]} could not be brought back: {error.reason}")
            return
        lost, engine = self.engines[index], RayEngine(self._processes, index, self.version)
        self.replace(index, engine)
        self._without_room.discard(index)
        seconds = time.monotonic() - began
        self._note(f"{lost} was lost; {engine} took its place after {seconds:.1f} s, with policy {self.version}")


def stored_weights(source: dict[str, torch.Tensor] | None, version: int) -> Stored:
    """The arguments of a weight update, in the object store."""
    return [ray.put(((source, version), {}))]


def _succeeded(ref: ray.ObjectRef) -> bool:
    try:
        ray.get(ref)
    except GONE:
        return False
    return True
