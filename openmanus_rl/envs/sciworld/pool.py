"""Simulators shared by all sciworlds of a process: started when needed, reused between episodes, replaced when grown.

A world borrows a simulator for an episode and gives it back at its end. One that has grown past a limit, or has played
many episodes, is ended then. Beside them, one more works out gold paths, one path at a time.
"""

import atexit
import threading
from functools import lru_cache

from openmanus_rl.envs.base import NoRoom
from openmanus_rl.envs.sciworld.simulator import Simulator
from openmanus_rl.envs.sciworld.tasks import ScienceTask

MAX_MEGABYTES = 512
MAX_EPISODES = 500
"""A simulator past either of these is replaced between episodes."""

GOLD_SECONDS = 900
"""How long a gold path may take, waiting for others included: a whole episode is played for it."""


class SimulatorPool:
    """Lends simulators, each to one episode at a time. Used from many threads."""

    def __init__(self) -> None:
        self._idle: list[Simulator] = []
        self._lent: set[Simulator] = set()
        self._starting = 0
        self._lock = threading.Lock()

    def borrow(self, limit: int) -> Simulator:
        """An idle simulator, or a new one; `NoRoom` if `limit` of them are lent."""
        with self._lock:
            if len(self._lent) + self._starting >= limit:
                raise NoRoom(
                    f"sciworld: {limit} episodes are being played, each in a Java process of its own.",
                    "Raise env.options.simulators if there is memory for more, or start more servers.",
                )
            if self._idle:
                simulator = self._idle.pop()
                self._lent.add(simulator)
                return simulator
            self._starting += 1
        try:
            simulator = Simulator()
            with self._lock:
                self._lent.add(simulator)
            return simulator
        finally:
            with self._lock:
                self._starting -= 1

    def give_back(self, simulator: Simulator) -> None:
        """Keep it for the next episode, unless it has ended, grown or aged. Giving back twice is fine."""
        with self._lock:
            if simulator not in self._lent:
                return
            self._lent.remove(simulator)
            if not _is_spent(simulator):
                self._idle.append(simulator)
                return
        simulator.kill()

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        with self._lock:
            return [simulator.pid for simulator in [*self._idle, *self._lent]]

    def close(self) -> None:
        """End all simulators."""
        with self._lock:
            ending = [*self._idle, *self._lent]
            self._idle.clear()
            self._lent.clear()
        for simulator in ending:
            simulator.kill()


class GoldPaths:
    """Gold action sequences, worked out one at a time and remembered."""

    def __init__(self) -> None:
        self._simulator: Simulator | None = None
        self._lock = threading.Lock()
        self.of = lru_cache(maxsize=4096)(self._work_out)

    def _work_out(self, task: ScienceTask, simplifications: str) -> tuple[str, ...]:
        with self._lock:
            if self._simulator is None:
                self._simulator = Simulator(GOLD_SECONDS)
            try:
                self._simulator.load(task, simplifications, gold=True)
                return tuple(self._simulator.listed("getGoldActionSequence"))
            finally:
                if _is_spent(self._simulator):
                    self._simulator.kill()
                    self._simulator = None

    def close(self) -> None:
        with self._lock:
            if self._simulator is not None:
                self._simulator.kill()
                self._simulator = None


def _is_spent(simulator: Simulator) -> bool:
    memory = simulator.memory_bytes
    return not memory or memory > MAX_MEGABYTES << 20 or simulator.episodes >= MAX_EPISODES


POOL = SimulatorPool()
GOLD = GoldPaths()
atexit.register(POOL.close)
atexit.register(GOLD.close)
