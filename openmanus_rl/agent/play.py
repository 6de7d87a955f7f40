"""One episode: prompt → tokens → action → observation, until something ends it."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.templates import ActionTemplate
from openmanus_rl.config.schema import AgentConfig
from openmanus_rl.envs.base import Task, stable_hash
from openmanus_rl.envs.client.base import EnvironmentClient, Handle
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, EngineLost, FinishReason, InferenceEngine, SamplingParams
from openmanus_rl.models.chat import ChatRenderer

CUT_MARK = " … "
"""Stands where the middle of a long observation was cut."""
_CUT_OFF = {FinishReason.ABORTED: StopReason.ABORTED, FinishReason.DEADLINE: StopReason.DEADLINE}


class EngineFailure(Exception):
    """The engine raised while it sampled. The episode is not a sample."""


@dataclass(frozen=True)
class EpisodeRequest:
    """What to play: a task, as which episode of which group, from which seed."""

    task: Task
    group: int
    sample: int
    seed: int
    temperature: float


@dataclass(frozen=True)
class Player:
    """What an episode is played with."""

    env_name: str
    config: AgentConfig
    template: ActionTemplate
    renderer: ChatRenderer
    engine: InferenceEngine
    client: EnvironmentClient
    max_context: int


async def play_episode(player: Player, request: EpisodeRequest, session: str, deadline: float) -> Episode:
    """Play one task once. A failure of world or engine is raised: the caller decides on a retry."""
    episode = Episode(request.task, request.group, request.sample, request.seed)
    started = await player.client.start(request.task)
    try:
        await _play_turns(player, request, episode, started, session, deadline)
    finally:
        player.engine.release(session)
        await _whatever_happens(player.client.close(started))
    return episode


async def _whatever_happens(work: Coroutine[Any, Any, None]) -> None:
    """Finish `work` also if the episode is cancelled meanwhile: a session that nobody closes takes up room."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _play_turns(
    player: Player, request: EpisodeRequest, episode: Episode, started: Handle, session: str, deadline: float
) -> None:
    config = player.config
    segment = _open_segment(player, episode.task, started)
    episode.segments.append(segment)
    state_key = started.state_key
    while True:
        reason = _budget_spent(player, episode, segment)
        if reason:
            episode.stop_reason = reason
            return
        turn, completion = await _generate(player, request, episode, session, deadline)
        turn.state_key = state_key
        if completion.finish_reason in _CUT_OFF:
            episode.stop_reason = _CUT_OFF[completion.finish_reason]
            episode.failure = f"generation ended by {completion.finish_reason}"
            return
        if completion.finish_reason is FinishReason.CONTEXT:
            episode.stop_reason = StopReason.CONTEXT_FULL
            return
        parsed = player.template.parse(turn.text)
        turn.action, turn.invalid_reason = parsed.action, parsed.invalid_reason
        if parsed.action is None:
            turn.reward = -config.invalid_penalty
            turn.observation = f"Invalid answer: {parsed.invalid_reason}."
            if config.invalid_action == "end":
                episode.stop_reason = StopReason.INVALID_ACTION
                return
        else:
            began = time.monotonic()
            result, state_key = await player.client.step(started, parsed.action)
            turn.env_seconds = time.monotonic() - began
            turn.reward = result.reward
            turn.observation = result.observation.text
            turn.invalid_reason = result.info.get("invalid")
            episode.success = result.success
            if result.terminated:
                episode.stop_reason = StopReason.DONE
                return
            if result.truncated:
                episode.stop_reason = StopReason.TRUNCATED
        # The observation is appended even after the last turn: the critic reads the value of a cut episode there.
        fits = _append_observation(player, segment, turn)
        if episode.stop_reason is StopReason.TRUNCATED:
            return
        if not fits:
            episode.stop_reason = StopReason.CONTEXT_FULL
            return


def _open_segment(player: Player, task: Task, started: Handle) -> Segment:
    observation = _shorten(player, started.observation.text)
    ids = player.renderer.prompt_ids(player.template.opening(task.prompt or started.instructions, observation))
    return Segment(ids=ids, prompt_length=len(ids))


def _append_observation(player: Player, segment: Segment, turn: Turn) -> bool:
    """Append what the turn led to, unless the segment would be longer than the context; says whether it was."""
    ended = turn.token_ids[-1] in player.renderer.stop_token_ids
    ids = player.renderer.append_ids(ended, _shorten(player, turn.observation))
    fits = len(segment.ids) + len(ids) <= player.max_context
    if fits:
        segment.ids.extend(ids)
    return fits


def _budget_spent(player: Player, episode: Episode, segment: Segment) -> StopReason | None:
    config = player.config
    if len(episode.turns) >= config.max_turns:
        return StopReason.MAX_TURNS
    if episode.sampled_tokens >= config.max_episode_tokens:
        return StopReason.TOKEN_BUDGET
    if len(segment.ids) + config.max_tokens_per_turn > player.max_context:
        return StopReason.CONTEXT_FULL
    return None


async def _generate(
    player: Player, request: EpisodeRequest, episode: Episode, session: str, deadline: float
) -> tuple[Turn, Completion]:
    """Sample one turn and append its tokens to the present segment."""
    segment = episode.segments[-1]
    index = len(episode.turns)
    left = player.config.max_episode_tokens - episode.sampled_tokens
    sampling = SamplingParams(
        max_tokens=min(player.config.max_tokens_per_turn, left),
        temperature=request.temperature,
        stop_token_ids=player.renderer.stop_token_ids,
    )
    began = time.monotonic()
    try:
        completion = await player.engine.generate(
            list(segment.ids),
            sampling,
            seed=stable_hash(f"{episode.seed}/{index}") >> 1,
            session=session,
            deadline=deadline,
        )
    except (UserError, EngineLost):
        raise  # no other try of this episode would fare better
    except Exception as error:
        raise EngineFailure(f"{type(error).__name__}: {error}") from error
    turn = Turn(
        start=len(segment.ids),
        token_ids=completion.token_ids,
        log_probs=completion.log_probs,
        versions=completion.versions,
        text=player.renderer.decode(completion.token_ids),
        action=None,
        invalid_reason=None,
        state_key=None,
        generate_seconds=time.monotonic() - began,
    )
    segment.ids.extend(completion.token_ids)
    segment.turns.append(turn)
    return turn, completion


def _shorten(player: Player, text: str) -> str:
    """Cut the middle out of an observation longer than the limit in tokens."""
    limit = player.config.max_observation_tokens
    if len(text.encode()) <= limit:  # a token is at least one byte
        return text
    ids = player.renderer.encode_content(text)
    if len(ids) <= limit:
        return text
    half = (limit - len(player.renderer.encode_content(CUT_MARK))) // 2
    # A character whose bytes were cut apart decodes to replacement characters, which are longer than what was cut.
    head, tail = player.renderer.decode(ids[:half]), player.renderer.decode(ids[-half:])
    return head.rstrip("\ufffd") + CUT_MARK + tail.lstrip("\ufffd")
