"""The rollout role: an inference engine in a process of its own."""

import time

import torch

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.inference.base import Completion, SamplingParams
from openmanus_rl.inference.factory import make_engine
from openmanus_rl.workers.registry import worker


@worker("rollout")
class RolloutWorker:
    """What `InferenceEngine` says, for callers in other processes: all is `async`, and times are seconds from now."""

    independent = True

    def __init__(self, model_dir: str, config: RunConfig) -> None:
        self.engine = make_engine(config, model_dir)

    async def generate(
        self, prompt_ids: list[int], sampling: SamplingParams, seed: int, session: str, seconds: float | None
    ) -> Completion:
        """Sample for at most `seconds`: clocks of two machines have nothing in common."""
        deadline = None if seconds is None else time.monotonic() + seconds
        return await self.engine.generate(prompt_ids, sampling, seed=seed, session=session, deadline=deadline)

    async def score(self, ids: list[int], temperature: float) -> list[float]:
        """Log-prob of each of `ids[1:]`."""
        return await self.engine.score(ids, temperature)

    async def abort(self, session: str) -> None:
        """End the session's running request."""
        self.engine.abort(session)

    async def release(self, session: str) -> None:
        """Forget the session."""
        self.engine.release(session)

    async def update_weights(self, source: dict[str, torch.Tensor] | None, version: int) -> None:
        """Take new weights."""
        await self.engine.update_weights(source, version)

    async def close(self) -> None:
        """Stop the engine."""
        await self.engine.close()
