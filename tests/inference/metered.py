"""A model that computes only what it is allowed to, so that a test can do something between two forwards."""

import asyncio
import threading

import torch

PATIENCE = 240.0


class Metered:
    """Every forward of the model waits until `allow` has paid for it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.started = 0
        self._allowed = threading.Semaphore(0)
        model.register_forward_pre_hook(self._wait)

    def allow(self, forwards: int = 10**6) -> None:
        self._allowed.release(forwards)

    async def reach(self, forward: int) -> None:
        """Wait until so many forwards have started: the last of them stands still if it is not paid for."""
        async with asyncio.timeout(PATIENCE):
            while self.started < forward:
                await asyncio.sleep(0.001)

    def _wait(self, *_: object) -> None:
        self.started += 1
        assert self._allowed.acquire(timeout=PATIENCE), "nobody allowed this forward"
