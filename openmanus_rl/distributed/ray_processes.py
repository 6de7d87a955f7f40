"""A pool of processes on a Ray cluster: where they are placed, how they are called, and what their loss looks like."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, RayError, WorkerCrashedError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from openmanus_rl.config.schema import ClusterConfig, PoolConfig
from openmanus_rl.distributed.errors import RankLost, WorkerError
from openmanus_rl.distributed.host import Answer, Failure, Host, Place, Stored
from openmanus_rl.distributed.processes import Arguments
from openmanus_rl.distributed.shipping import packed_class, ship_tensors_as_memory
from openmanus_rl.errors import UserError

GONE = (RayActorError, NodeDiedError, ObjectLostError, WorkerCrashedError)
"""What Ray raises when a process or its node is gone."""

POLL_SECONDS = 1.0
"""Longest single wait for Ray, so that signals are heard."""

GRACE_SECONDS = 10.0
"""After one rank failed, the others have this long to end: they may wait in an exchange that never comes."""

PULSE_SECONDS = 60.0
"""Between two looks whether ranks that compute for long are alive, and how long they have to say so."""

MAX_CALLS = 100_000
"""Calls under way in one process; engines bound their own."""


@dataclass(frozen=True)
class Rank:
    """A process and where it is."""

    handle: Any
    """Ray's handle of a `Host`; Ray's own types know no methods that it adds."""
    bundle: int
    index: int
    """Which of the processes of its bundle."""
    place: Place


class RayProcesses:
    """The ranks of a pool: `ranks_per_node` processes on each of `nodes` machines.

    Ranks are numbered node by node, beginning with the node that asks if it is among them. They form one
    `torch.distributed` group unless all their workers are of classes that say `independent = True`: the ranks of such
    a class need nothing of each other, and a lost one is as good as new when it is made again.
    """

    def __init__(self, name: str, pool: PoolConfig, cluster: ClusterConfig) -> None:
        ship_tensors_as_memory()
        self.name = name
        self.pool = pool
        self.start_timeout = cluster.start_timeout
        self.ranks: list[Rank] = []
        self._roles: dict[str, tuple[bytes, Stored]] = {}
        self.independent = True
        deadline = time.monotonic() + cluster.start_timeout
        self._reservation = _reserve(pool)
        try:
            _wait_for_room(name, pool, self._reservation, deadline)
            self.ranks = self._start_all(deadline)
        except BaseException:
            self.close()
            raise

    @property
    def count(self) -> int:
        return self.pool.ranks

    def create(self, role: str, worker_cls: type, arguments: dict[str, Any]) -> None:
        if self.independent and not getattr(worker_cls, "independent", False):
            self.independent = False
            if self.count > 1:
                self._join()
        self._roles[role] = (packed_class(worker_cls), [ray.put(arguments)])
        refs = [rank.handle.create.remote(role, *self._roles[role]) for rank in self.ranks]
        self._answers(role, "__init__", refs)

    def call(self, role: str, method: str, per_rank: Sequence[Arguments]) -> list[Any]:
        distinct = {id(arguments): arguments for arguments in per_rank}
        stored = {key: [ray.put(arguments)] for key, arguments in distinct.items()}
        refs = [
            rank.handle.call.remote(role, method, stored[id(arguments)])
            for rank, arguments in zip(self.ranks, per_rank, strict=False)
        ]
        return self._answers(role, method, refs)

    def call_on(self, rank: int, role: str, method: str, arguments: Stored) -> Any:
        """Call a method on one rank, with arguments that are in the object store."""
        refs = [self.ranks[rank].handle.call.remote(role, method, arguments)]
        return self._answers(role, method, refs, first_rank=rank)[0]

    def local(self, role: str) -> None:
        return None

    def restart(self, rank: int, wait_for_room: bool) -> bool:
        """A fresh process for a rank that is lost, with its roles made anew.

        False if there is no room for it in the cluster: at once, or with `wait_for_room` after `start_timeout`.
        """
        lost = self.ranks[rank]
        if not self.independent:
            raise RankLost(self.name, rank, str(lost.place), "what its workers had learnt is lost with it")
        ray.kill(lost.handle)
        deadline = time.monotonic() + self.start_timeout

        def is_hopeless() -> bool:
            return time.monotonic() > deadline or not (wait_for_room or _has_room(self._reservation))

        while (started := self._started_again(rank, is_hopeless)) is None:
            if is_hopeless():
                return False
            time.sleep(POLL_SECONDS)
        self.ranks[rank] = started
        for role, (code, arguments) in self._roles.items():
            self._answers(role, "__init__", [started.handle.create.remote(role, code, arguments)], first_rank=rank)
        return True

    def close(self) -> None:
        """End the processes and give their room back."""
        if not ray.is_initialized():
            return
        for rank in self.ranks:
            ray.kill(rank.handle)
        self.ranks = []
        remove_placement_group(self._reservation)

    def _started_again(self, rank: int, is_hopeless: Callable[[], bool]) -> Rank | None:
        """A process in the place of the rank's; None if it did not start, say on a node that is about to go."""
        lost = self.ranks[rank]
        handle = self._start(lost.bundle)
        answer = handle.place.remote()
        while not ray.wait([answer], timeout=POLL_SECONDS)[0]:
            if is_hopeless():
                ray.kill(handle)
                return None
        try:
            return Rank(handle, lost.bundle, lost.index, self._place(rank, answer))
        except RankLost:
            return None

    def _start_all(self, deadline: float) -> list[Rank]:
        slots = [(bundle, index) for bundle in range(self.pool.nodes) for index in range(self.pool.ranks_per_node)]
        handles = [self._start(bundle) for bundle, _ in slots]
        waiting = [handle.place.remote() for handle in handles]
        while len(ray.wait(waiting, num_returns=len(waiting), timeout=POLL_SECONDS)[0]) < len(waiting):
            if time.monotonic() > deadline:
                for handle in handles:
                    ray.kill(handle)
                raise UserError(
                    f"the processes of the pool {self.name} did not start within {self.start_timeout:g} s.",
                    "Raise cluster.start_timeout, or see Ray's logs on the nodes.",
                )
        ranks = [
            Rank(handle, bundle, index, self._place(number, answer))
            for number, (handle, (bundle, index), answer) in enumerate(zip(handles, slots, waiting, strict=True))
        ]
        here = ray.get_runtime_context().get_node_id()
        return sorted(ranks, key=lambda rank: (rank.place.node != here, rank.place.node, rank.index))

    def _start(self, bundle: int) -> Any:
        threads = max(1, int(self.pool.cpus_per_rank))
        return (
            ray.remote(Host)
            .options(
                num_cpus=self.pool.cpus_per_rank,
                num_gpus=self.pool.gpus_per_rank,
                max_concurrency=MAX_CALLS,
                scheduling_strategy=PlacementGroupSchedulingStrategy(self._reservation, bundle),
                runtime_env={"env_vars": {"OMP_NUM_THREADS": str(threads)}},
            )
            .remote(threads)
        )

    def _place(self, rank: int, answer: ray.ObjectRef) -> Place:
        try:
            return ray.get(answer)
        except RayError as error:
            raise RankLost(self.name, rank, "unknown", f"its process did not start: {error}") from error

    def _join(self) -> None:
        backend = "cpu:gloo,cuda:nccl" if self.pool.gpus_per_rank else "gloo"
        first = self.ranks[0].handle
        (point,) = self._answers(self.name, "join", [first.open_meeting_point.remote(self.count, backend)])
        refs = [rank.handle.join.remote(number, point) for number, rank in enumerate(self.ranks)]
        self._answers(self.name, "join", refs)

    def _answers(self, role: str, method: str, refs: list[ray.ObjectRef], first_rank: int = 0) -> list[Any]:
        """What ranks `first_rank`, … answer. If one fails or is lost the others are not waited for much longer.

        A lost rank makes the ones that exchange data with it fail too: its loss is what is reported.
        """
        waiting = {ref: rank for rank, ref in enumerate(refs, first_rank)}
        answers: dict[int, Any] = {}
        errors: list[Exception] = []
        give_up, next_pulse = float("inf"), time.monotonic() + PULSE_SECONDS
        while waiting and time.monotonic() < give_up:
            for ref in ray.wait(list(waiting), timeout=POLL_SECONDS)[0]:
                rank = waiting.pop(ref)
                try:
                    answers[rank] = self._answer(role, method, rank, ref)
                except (WorkerError, RankLost, UserError) as error:
                    errors.append(error)
                    give_up = min(give_up, time.monotonic() + GRACE_SECONDS)
            if time.monotonic() > next_pulse:
                errors += self._without_pulse(list(waiting.values()))
                give_up = time.monotonic() if errors else give_up
                next_pulse = time.monotonic() + PULSE_SECONDS
        for rank in waiting.values():
            ray.kill(self.ranks[rank].handle)
        if errors:
            raise next((error for error in errors if isinstance(error, RankLost)), errors[0])
        return [answers[rank] for rank in sorted(answers)]

    def _answer(self, role: str, method: str, rank: int, ref: ray.ObjectRef) -> Any:
        place = self.ranks[rank].place
        try:
            outcome = ray.get(ref)
        except GONE as error:
            raise RankLost(self.name, rank, str(place), str(error)) from error
        except RayError as error:
            raise WorkerError(role, method, rank, str(place), type(error).__name__, str(error)) from error
        return value_of(outcome, role, method, rank, place)

    def _without_pulse(self, ranks: list[int]) -> list[RankLost]:
        """Those of the ranks whose process is there and says nothing: stopped, or stuck."""
        pulses = {self.ranks[rank].handle.is_alive.remote(): rank for rank in ranks}
        silent = ray.wait(list(pulses), num_returns=len(pulses), timeout=PULSE_SECONDS)[1] if pulses else []
        reason = f"its process gave no sign of life for {PULSE_SECONDS:g} s"
        return [
            RankLost(self.name, rank, str(self.ranks[rank].place), reason)
            for ref, rank in pulses.items()
            if ref in silent
        ]


def value_of(outcome: Answer | Failure, role: str, method: str, rank: int, place: Place) -> Any:
    """What a call returned; what it raised there is raised here."""
    if isinstance(outcome, Answer):
        return outcome.value
    if outcome.user_error is not None:
        raise UserError(*outcome.user_error)
    raise WorkerError(role, method, rank, str(place), outcome.summary, outcome.remote_traceback)


def _reserve(pool: PoolConfig) -> PlacementGroup:
    """One bundle a node, each on a machine of its own."""
    bundle = {"CPU": max(pool.cpus_per_rank * pool.ranks_per_node, 0.001)}  # Ray wants something to be asked for
    if pool.gpus_per_rank:
        bundle["GPU"] = pool.gpus_per_rank * pool.ranks_per_node
    return placement_group([bundle] * pool.nodes, strategy="STRICT_SPREAD")


def _wait_for_room(name: str, pool: PoolConfig, reservation: PlacementGroup, deadline: float) -> None:
    while not reservation.wait(POLL_SECONDS):
        if time.monotonic() > deadline:
            has = ", ".join(
                f"{node['Resources'].get('CPU', 0):g} CPUs and {node['Resources'].get('GPU', 0):g} GPUs"
                for node in ray.nodes()
                if node["Alive"]
            )
            raise UserError(
                f"the cluster has no room for the pool {name}: {pool.nodes} nodes, each with "
                f"{pool.cpus_per_rank * pool.ranks_per_node:g} CPUs and {pool.gpus_per_rank * pool.ranks_per_node:g} "
                f"GPUs free. Its nodes have {has}.",
                f"Lower cluster.pools.{name}, add nodes, or raise cluster.start_timeout.",
            )


def _has_room(reservation: PlacementGroup) -> bool:
    return bool(placement_group_table(reservation)["state"] == "CREATED")
