"""What an agent sees of a world behind HTTP: start a task, step, close; and the two ways it can fail."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from openmanus_rl.envs.base import Observation, StepResult, Task
from openmanus_rl.errors import UserError


class EnvFailure(Exception):
    """The world or its server failed. The episode is not a sample, and never a reward of 0."""


class EnvTimeout(EnvFailure):
    """The world or its server did not answer in time."""


@dataclass(frozen=True)
class Patience:
    """How long to wait and how often to try again. Seconds are in all, over every try."""

    start_seconds: float = 120.0
    step_seconds: float = 60.0
    """Longer than a server's own limit for a step, so that the server's reason is what is told."""
    close_seconds: float = 10.0
    tries: int = 5
    """Failed tries of one request; waiting for a full server is not one."""
    backoff_seconds: float = 0.1
    """The pause before the second try; it doubles with every further one."""

    def pause(self, tries: int) -> float:
        """Seconds to wait after so many failed tries."""
        return float(self.backoff_seconds * 2 ** (tries - 1))


@dataclass
class Handle:
    """One task being played: where, what was first seen, and how far it has come."""

    task: Task
    url: str
    session: int
    observation: Observation
    """The first one."""
    state_key: str | None
    """Of the first state."""
    instructions: str
    turn: int = 0
    total: float = 0.0
    """The rewards so far, added up."""
    done: bool = False
    closed: bool = False


class EnvironmentClient(ABC):
    """Plays many tasks at once. Every call ends in time, with an answer or an `EnvFailure`; none acts twice."""

    @abstractmethod
    async def start(self, task: Task) -> Handle:
        """Open a session and start the task in it."""

    @abstractmethod
    async def step(self, handle: Handle, action: str) -> tuple[StepResult, str | None]:
        """Act once; the second value is the key of the state that this led to."""

    async def fork(self, handle: Handle) -> Handle:
        """Another session in the state of this one; the two go on apart."""
        raise UserError(
            f"{handle.task.env} is played on servers that cannot copy a session.",
            "Only worlds of our own service can be copied, if they have snapshot() and restore().",
        )

    @abstractmethod
    async def close(self, handle: Handle) -> None:
        """End the session; twice is fine. A server out of reach is logged, not raised: the session expires there."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
