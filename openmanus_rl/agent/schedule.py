"""Many episodes at once: at most so many, each at its own pace, failures within a budget, stragglers aborted."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.agent.play import EngineFailure, EpisodeRequest
from openmanus_rl.agent.rewards import Judge
from openmanus_rl.envs.client.base import EnvFailure, EnvTimeout
from openmanus_rl.errors import UserError

PlayOnce = Callable[[EpisodeRequest, str, float], Awaitable[Episode]]
"""(request, name of the engine's session, deadline) → the episode; a failure of world or engine is raised."""

_sessions = itertools.count()
"""Numbers the sessions of all agents: several may share an engine."""


@dataclass(frozen=True)
class RolloutLimits:
    """How many episodes run at once, how long one may take, how often a failed one starts afresh, and how many may."""

    concurrency: int = 256
    episode_timeout: float = 300.0
    retries: int = 2
    failure_budget: float = float("inf")
    """Failed tries, as a share of the episodes that are asked for, above which nothing goes on."""


class TooManyFailures(UserError):
    """The worlds or the engine fail so often that going on would be no training."""


async def play_requests(
    play: PlayOnce,
    requests: Sequence[EpisodeRequest],
    limits: RolloutLimits,
    *,
    judge: Judge | None = None,
    on_end: Callable[[Episode], None] | None = None,
    enough: int | None = None,
) -> list[Episode]:
    """Play all requests, telling `on_end` of each as it ends; results come in the order of the requests.

    Episodes of a group start next to each other, so that groups complete one after the other. Once `enough` episodes
    of a group are samples, the rest of it is aborted: their requests to the engine, their sessions in the world.
    """
    free = asyncio.Semaphore(limits.concurrency)
    budget = _FailureBudget(limits, len(requests))
    groups = {request.group: _Group(enough) for request in requests}

    async def play_one(request: EpisodeRequest) -> Episode:
        group = groups[request.group]
        try:
            async with free:
                episode = await _play_with_retries(play, request, limits, budget)
            if judge is not None and episode.stop_reason.is_sample:
                await judge(episode)
        except asyncio.CancelledError:
            if not group.complete:
                raise
            episode = _aborted(request)
        if group.complete and episode.stop_reason.is_sample:  # it ended in the same moment as the last that counts
            episode = _aborted(request)
        group.note(episode)
        if on_end is not None:
            on_end(episode)
        return episode

    try:
        async with asyncio.TaskGroup() as everything:
            tasks = {}
            for index in _by_group(requests):
                tasks[index] = everything.create_task(play_one(requests[index]))
                groups[requests[index].group].tasks.append(tasks[index])
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors  # a user's mistake is shown as one, not as a group of them
    return [tasks[index].result() for index in range(len(requests))]


class _Group:
    """The episodes of one task, and how many of them are wanted."""

    def __init__(self, enough: int | None) -> None:
        self.tasks: list[asyncio.Task[Episode]] = []
        self._enough = enough
        self._samples = 0

    @property
    def complete(self) -> bool:
        return self._enough is not None and self._samples >= self._enough

    def note(self, episode: Episode) -> None:
        """An episode has ended; if it was the last that counts, the stragglers end too."""
        if self.complete or not episode.stop_reason.is_sample:
            return
        self._samples += 1
        if self.complete:
            for task in self.tasks:
                if task is not asyncio.current_task():
                    task.cancel()


class _FailureBudget:
    """Counts failed tries by cause and says when there are too many of them.

    The limit depends on how many episodes there are, not on which of them end first. One episode's own retries are
    always within it.
    """

    def __init__(self, limits: RolloutLimits, episodes: int) -> None:
        self._allowed = max(limits.failure_budget * episodes, limits.retries + 1)
        self._episodes = episodes
        self._causes: Counter[StopReason] = Counter()

    def note(self, failed: Episode) -> None:
        self._causes[failed.stop_reason] += 1
        if self._causes.total() <= self._allowed:
            return
        causes = ", ".join(f"{count} by {reason}" for reason, count in self._causes.most_common())
        raise TooManyFailures(
            f"{self._causes.total()} tries at {self._episodes} episodes failed: {causes}. "
            f"The last, task {failed.task.item_id}: {failed.failure}",
            "The environment servers' logs are in the run directory under env/. "
            "rollout.failure_budget says how many may fail.",
        )


async def _play_with_retries(
    play: PlayOnce, request: EpisodeRequest, limits: RolloutLimits, budget: _FailureBudget
) -> Episode:
    """Play until it is a sample or the retries are spent; each try has a session and a deadline of its own."""
    failed_tries: list[StopReason] = []
    while True:
        episode = await _try(play, request, limits.episode_timeout)
        episode.failed_tries = failed_tries
        if episode.stop_reason.is_sample or episode.stop_reason is StopReason.ABORTED:
            return episode
        budget.note(episode)
        if len(failed_tries) == limits.retries:
            return episode
        failed_tries.append(episode.stop_reason)


async def _try(play: PlayOnce, request: EpisodeRequest, seconds: float) -> Episode:
    try:
        async with asyncio.timeout(seconds):
            return await play(request, f"episode-{next(_sessions)}", time.monotonic() + seconds)
    except EnvTimeout as error:
        return _ended(request, StopReason.ENV_TIMEOUT, str(error))
    except EnvFailure as error:
        return _ended(request, StopReason.ENV_FAILURE, str(error))
    except TimeoutError:
        return _ended(request, StopReason.DEADLINE, f"the episode took longer than {seconds:g} s")
    except EngineFailure as error:
        return _ended(request, StopReason.ENGINE_FAILURE, str(error))


def _aborted(request: EpisodeRequest) -> Episode:
    return _ended(request, StopReason.ABORTED, "enough episodes of its group had ended")


def _ended(request: EpisodeRequest, reason: StopReason, failure: str) -> Episode:
    episode = Episode(request.task, request.group, request.sample, request.seed)
    episode.stop_reason, episode.failure = reason, failure
    return episode


def _by_group(requests: Sequence[EpisodeRequest]) -> list[int]:
    """The places of the requests, those of a group next to each other."""
    place = {group: index for index, group in enumerate(dict.fromkeys(request.group for request in requests))}
    return sorted(range(len(requests)), key=lambda index: place[requests[index].group])
