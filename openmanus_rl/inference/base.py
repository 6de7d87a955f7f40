"""What an inference engine is: token ids in; token ids, their log-probs and policy versions out.

Log-probs are those of the distribution that was sampled: after temperature and any truncation.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch


class EngineLost(RuntimeError):
    """The process that computed is gone, with all that it held for its sessions."""


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """A stop token was sampled; it is the last of `token_ids`."""
    LENGTH = "length"
    """`max_tokens` were sampled."""
    CONTEXT = "context"
    """The model's or the engine's longest context was reached."""
    DEADLINE = "deadline"
    """The request's deadline passed; what was sampled so far is returned."""
    ABORTED = "aborted"
    """`abort(session)` was called."""


@dataclass(frozen=True)
class SamplingParams:
    """How the next tokens are drawn. `temperature=0` is greedy, with log-prob 0 for each token."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0: no limit."""
    stop_token_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Completion:
    """What was sampled for one request: three lists of equal length, and why it ended."""

    token_ids: list[int]
    log_probs: list[float]
    versions: list[int]
    finish_reason: FinishReason


class InferenceEngine(ABC):
    """Asynchronous generation for many sessions at once.

    A session is one growing token list: each call of `generate` passes the whole list, and the engine computes only
    what it has not seen. `release` frees what the engine holds for it; a released or unknown session is no error.
    """

    @abstractmethod
    async def generate(
        self,
        prompt_ids: list[int],
        sampling: SamplingParams,
        *,
        seed: int,
        session: str,
        deadline: float | None = None,
    ) -> Completion:
        """Sample a continuation of `prompt_ids`. `deadline` is in `time.monotonic()` seconds.

        What is sampled depends on weights, `prompt_ids`, `sampling` and `seed` only, not on what else is running.
        """

    @abstractmethod
    async def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        """Log-prob of each of `ids[1:]` given what stands before it."""

    @abstractmethod
    def abort(self, session: str) -> None:
        """End the session's running request with `FinishReason.ABORTED`."""

    @abstractmethod
    def release(self, session: str) -> None:
        """Forget the session."""

    @abstractmethod
    async def update_weights(self, source: dict[str, torch.Tensor] | None, version: int) -> None:
        """Take new weights as policy `version`; None where the engine shares the trainer's tensors.

        No key or value computed with older weights is used for a request that starts afterwards.
        """

    @property
    @abstractmethod
    def version(self) -> int:
        """The policy version of the present weights."""

    @property
    def replicas(self) -> Mapping[str, "InferenceEngine"]:
        """The engines that compute, each with weights of its own, by what to call them in a message."""
        return {"the engine": self}

    @abstractmethod
    async def close(self) -> None:
        """Stop; requests still running end as aborted."""
