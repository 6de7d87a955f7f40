"""One process of a pool: a Ray actor in which workers of several roles live."""

import asyncio
import inspect
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import ray
import ray.cloudpickle
import torch

from openmanus_rl.distributed.joining import MeetingPoint, join, open_meeting_point
from openmanus_rl.distributed.processes import Arguments
from openmanus_rl.distributed.shipping import ship_tensors_as_memory
from openmanus_rl.errors import UserError


@dataclass(frozen=True)
class Place:
    """Where a process runs."""

    node: str
    """Ray's id of the node."""
    address: str
    """The node's address in the cluster's network."""
    pid: int

    def __str__(self) -> str:
        return f"{self.node[:8]} at {self.address}"


@dataclass(frozen=True)
class Answer:
    """What a call returned."""

    value: Any


@dataclass(frozen=True)
class Failure:
    """What a call raised. It is described, since the exception itself may mean nothing in another process."""

    summary: str
    remote_traceback: str
    user_error: tuple[str, str] | None
    """What was wrong and what to do, if it is the user's to mend."""


Stored = list[ray.ObjectRef]
"""One reference in a list: Ray would open it before the call, in the way of all other calls."""


class Host:
    """Plain methods of its workers run one after the other in one thread; `async` ones beside them, all at once."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        ship_tensors_as_memory()
        self._workers: dict[str, Any] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")
        self._store: torch.distributed.Store | None = None

    async def place(self) -> Place:
        return Place(ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.getpid())

    async def is_alive(self) -> bool:
        return True

    async def open_meeting_point(self, ranks: int, backend: str) -> Answer | Failure:
        """The first half of joining, on rank 0."""

        def work() -> MeetingPoint:
            self._store, point = open_meeting_point(ray.util.get_node_ip_address(), ranks, backend)
            return point

        return await self._in_turn(work)

    async def join(self, rank: int, point: MeetingPoint) -> Answer | Failure:
        """The second half, on all ranks."""
        return await self._in_turn(lambda: join(point, rank, ray.util.get_node_ip_address(), self._store))

    async def create(self, role: str, packed_class: bytes, arguments: Stored) -> Answer | Failure:
        """Make the worker of a role."""

        def work() -> None:
            worker_cls = ray.cloudpickle.loads(packed_class)
            self._workers[role] = worker_cls(**ray.get(arguments[0]))

        return await self._in_turn(work)

    async def call(self, role: str, method: str, arguments: Arguments | Stored) -> Answer | Failure:
        """Call a method of the role's worker."""
        bound = getattr(self._workers[role], method)
        if inspect.iscoroutinefunction(bound):
            return await self._beside(bound, arguments)
        return await self._in_turn(lambda: _applied(bound, _opened(arguments)))

    async def _in_turn(self, work: Callable[[], Any]) -> Answer | Failure:
        return await asyncio.get_running_loop().run_in_executor(self._thread, _outcome, work)

    async def _beside(self, bound: Callable[..., Any], arguments: Arguments | Stored) -> Answer | Failure:
        try:
            opened = arguments if isinstance(arguments, tuple) else await asyncio.to_thread(_opened, arguments)
            return Answer(await _applied(bound, opened))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever called, and is raised there
            return _failure(error)


def _opened(arguments: Arguments | Stored) -> Arguments:
    return arguments if isinstance(arguments, tuple) else ray.get(arguments[0])


def _applied(function: Callable[..., Any], arguments: Arguments) -> Any:
    placed, named = arguments
    return function(*placed, **named)


def _outcome(work: Callable[[], Any]) -> Answer | Failure:
    try:
        return Answer(work())
    except Exception as error:  # noqa: BLE001 - it belongs to whoever called, and is raised there
        return _failure(error)


def _failure(error: Exception) -> Failure:
    user_error = (error.what, error.hint) if isinstance(error, UserError) else None
    summary = f"{type(error).__name__}: {error}"
    return Failure(summary, "".join(traceback.format_exception(error)), user_error)
