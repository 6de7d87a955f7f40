"""An agent written elsewhere plays the episodes: it talks to the gateway, and says at the end what it achieved."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.agent.gateway.recording import Recording
from openmanus_rl.agent.gateway.server import Gateway, Line
from openmanus_rl.agent.openmanus import OpenManusAgent
from openmanus_rl.agent.play import EngineFailure, EpisodeRequest, Player
from openmanus_rl.agent.rewards import Judge, TokenRewards
from openmanus_rl.agent.schedule import RolloutLimits, play_requests
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client.base import EnvFailure
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import EngineLost
from openmanus_rl.models.plain_chat import PlainChat


class Program(Protocol):
    """Plays one task with the model at `base_url`, which speaks OpenAI's chat API, and says (reward, success).

    `env_url` is a server of the task's world, for programs that play there. It is called in a thread of its own, once
    for each episode; what it raises makes the episode a failed one.
    """

    def __call__(self, *, base_url: str, task: Task, env_url: str) -> tuple[float, bool]: ...


class ProgramAgent(OpenManusAgent):
    """Plays with a `Program` in the place of our own turns; everything after that is the same."""

    def __init__(
        self,
        program: Program,
        env_urls: Mapping[str, Sequence[str]],
        player: Player,
        limits: RolloutLimits,
        rewards: TokenRewards,
        judge: Judge | None = None,
    ) -> None:
        if isinstance(player.renderer, PlainChat):
            raise UserError(
                "agent.program talks to an engine of ours, and rollout.engine=endpoint is none.",
                "Give the program the endpoint's address yourself, or set rollout.engine=embedded or vllm.",
            )
        super().__init__(player, limits, rewards, judge)
        self.program = program
        self.env_urls = env_urls
        self.renderer = player.renderer
        self.gateway = Gateway(
            player.engine,
            player.renderer,
            model="policy",
            max_context=player.max_context,
            max_tokens=player.config.max_tokens_per_turn,
        )

    def play(
        self,
        requests: Sequence[EpisodeRequest],
        on_end: Callable[[Episode], None] | None = None,
        enough: int | None = None,
    ) -> list[Episode]:
        return self.run(self._serve_and_play(requests, on_end, enough))

    async def _serve_and_play(
        self, requests: Sequence[EpisodeRequest], on_end: Callable[[Episode], None] | None, enough: int | None
    ) -> list[Episode]:
        async with self.gateway.serving() as url:
            play = partial(self._play_once, url)
            return await play_requests(play, requests, self.limits, judge=self.judge, on_end=on_end, enough=enough)

    async def _play_once(self, url: str, request: EpisodeRequest, session: str, deadline: float) -> Episode:
        line = Line(Recording(self.renderer), request.temperature, request.seed, session, deadline)
        name = self.gateway.open(line)
        servers = self.env_urls[request.task.env]
        call = partial(
            self.program,
            base_url=f"{url}/{name}/v1",
            task=request.task,
            env_url=servers[request.seed % len(servers)],
        )
        try:
            said, error = await _in_a_thread(call)
        finally:
            self.gateway.close(name)
        if isinstance(error, UserError):
            raise error
        _raise_engines(line)
        if error is not None:
            raise EnvFailure(f"the program raised {type(error).__name__}: {error}") from error
        return _episode(request, line.recording, *_outcome(said))


async def _in_a_thread(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What `call` returns or raises. Nobody waits for its thread once the episode is over, nor at the process's end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(outcome: tuple[Any, BaseException | None]) -> None:
        if not ended.done():
            ended.set_result(outcome)

    def work() -> None:
        try:
            outcome: tuple[Any, BaseException | None] = call(), None
        except BaseException as error:  # noqa: BLE001 - it belongs to the episode, and is told there
            outcome = None, error
        with suppress(RuntimeError):  # the loop is closed: the run has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name="program", daemon=True).start()
    return await ended


def _outcome(said: Any) -> tuple[float, bool]:
    try:
        reward, success = said
        return float(reward), bool(success)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"agent.program returned {said!r:.100}.", "It must return (reward, success), such as (1.0, True)."
        ) from error


def _raise_engines(line: Line) -> None:
    """An error of the engine reaches a program as an answer; whose fault it was must not be lost with that."""
    if isinstance(line.error, UserError | EngineLost):
        raise line.error
    if line.error is not None:
        raise EngineFailure(f"{type(line.error).__name__}: {line.error}") from line.error


def _episode(request: EpisodeRequest, recording: Recording, reward: float, success: bool) -> Episode:
    episode = Episode(request.task, request.group, request.sample, request.seed, recording.segments)
    if not episode.turns:
        raise EnvFailure("the program ended without a single call of the model")
    episode.turns[-1].reward = reward
    episode.stop_reason, episode.success = StopReason.DONE, success
    return episode
