"""One episode: prompt → tokens → action → observation, until something ends it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.line import Line
from openmanus_rl.agent.player import CUT_MARK, EpisodeRequest, Player
from openmanus_rl.agent.sampling import EngineFailure
from openmanus_rl.agent.strategies import together
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.client.base import Handle

LATE_START_SECONDS = 5.0
"""How long a cancelled episode waits for a session that is being opened, to close it; else it expires on its server."""

__all__ = ["CUT_MARK", "EngineFailure", "EpisodeRequest", "Player", "play_episode"]


async def play_episode(player: Player, request: EpisodeRequest, session: str, deadline: float) -> Episode:
    """Play one task once. A failure of world or engine is raised: the caller decides on a retry."""
    line = Line(player, request, await _start(player, request.task), session, deadline)
    try:
        played = await request.strategy.play(line)
    finally:
        await _whatever_happens(together([each.close() for each in list(line.family.values())]))
    played.episode.chosen = request.strategy.chooses
    return played.episode


async def _start(player: Player, task: Task) -> Handle:
    """A started task. If the episode is cancelled meanwhile, the session that the server may still open is closed."""
    starting = asyncio.ensure_future(player.client.start(task))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait({starting}, timeout=LATE_START_SECONDS)
        if starting.done() and not starting.cancelled() and starting.exception() is None:
            await player.client.close(starting.result())
        starting.cancel()
        raise


async def _whatever_happens(work: Coroutine[Any, Any, Any]) -> None:
    """Finish `work` also if the episode is cancelled meanwhile: a session that nobody closes takes up room."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
