"""Several engines as one: an episode stays where its keys are, a new one goes where the fewest are."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch

from openmanus_rl.inference.base import Completion, EngineLost, InferenceEngine, SamplingParams


class ReplicatedEngine(InferenceEngine):
    """Engines with the same weights, for more episodes than one of them can play.

    An engine that raises `EngineLost` gets nothing more until `replace` puts another in its place. A request carries
    all its tokens, so what the lost one was asked for is asked of another; `EngineLost` is raised when none is left.
    Requests may come from several threads, and so may a replacement.
    """

    def __init__(self, engines: Sequence[InferenceEngine]) -> None:
        if not engines:
            raise ValueError("there is nothing to choose from: engines is empty")
        self._engines = list(engines)
        self._lost: set[int] = set()
        self._places: dict[str, int] = {}
        """Which engine a session is on, until it is released."""
        self._version = engines[0].version
        self._lock = threading.RLock()
        """Held by whoever looks at or changes where sessions are."""

    @property
    def engines(self) -> list[InferenceEngine]:
        """All of them in order, lost ones too."""
        return list(self._engines)

    @property
    def replicas(self) -> Mapping[str, InferenceEngine]:
        return {f"engine {index}": self._engines[index] for index in self._alive()}

    @property
    def lost(self) -> list[int]:
        """The places of the engines that are gone."""
        return sorted(self._lost)

    @property
    def version(self) -> int:
        return self._version

    def replace(self, index: int, engine: InferenceEngine) -> None:
        """Put `engine`, which has the present weights, in the place of a lost one."""
        with self._lock:
            self._forget_sessions(index)
            self._engines[index] = engine
            self._lost.discard(index)

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: SamplingParams,
        *,
        seed: int,
        session: str,
        deadline: float | None = None,
    ) -> Completion:
        while True:
            index, engine = self._place_of(session)
            try:
                return await engine.generate(prompt_ids, sampling, seed=seed, session=session, deadline=deadline)
            except EngineLost:
                self._lose(index, engine)

    async def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        """By the first engine that is left: they all have the same weights."""
        while True:
            index = self._alive()[0]
            engine = self._engines[index]
            try:
                return await engine.score(ids, temperature)
            except EngineLost:
                self._lose(index, engine)

    def abort(self, session: str) -> None:
        self._tell(session, lambda engine: engine.abort(session))

    def release(self, session: str) -> None:
        self._tell(session, lambda engine: engine.release(session))
        with self._lock:
            self._places.pop(session, None)

    async def update_weights(self, source: dict[str, torch.Tensor] | None, version: int) -> None:
        """To all at once. An engine that is lost on the way is left behind; it is an error if none is left."""

        async def update(index: int) -> None:
            engine = self._engines[index]
            try:
                await engine.update_weights(source, version)
            except EngineLost:
                self._lose(index, engine)

        await asyncio.gather(*(update(index) for index in self._alive()))
        self._alive()
        self._version = version

    async def close(self) -> None:
        async def close(index: int) -> None:
            engine = self._engines[index]
            try:
                await engine.close()
            except EngineLost:
                self._lose(index, engine)

        await asyncio.gather(*(close(index) for index in range(len(self._engines)) if index not in self._lost))

    def _alive(self) -> list[int]:
        alive = [index for index in range(len(self._engines)) if index not in self._lost]
        if not alive:
            raise EngineLost(f"none of {len(self._engines)} engines is left")
        return alive

    def _place_of(self, session: str) -> tuple[int, InferenceEngine]:
        """Where the session is; a new one goes where the fewest are."""
        with self._lock:
            if session not in self._places:
                load = Counter(self._places.values())
                self._places[session] = min(self._alive(), key=lambda index: load[index])
            index = self._places[session]
            return index, self._engines[index]

    def _tell(self, session: str, message: Callable[[InferenceEngine], None]) -> None:
        """Pass on what concerns the session's engine; a session that is on none is no error."""
        with self._lock:
            index = self._places.get(session)
            if index is None:
                return
            engine = self._engines[index]
        try:
            message(engine)
        except EngineLost:
            self._lose(index, engine)

    def _lose(self, index: int, engine: InferenceEngine) -> None:
        """`engine` may have been replaced since the call that failed began."""
        with self._lock:
            if self._engines[index] is engine:
                self._lost.add(index)
                self._forget_sessions(index)

    def _forget_sessions(self, index: int) -> None:
        self._places = {session: place for session, place in self._places.items() if place != index}
