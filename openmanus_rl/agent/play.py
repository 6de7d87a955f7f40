"""One episode: prompt → tokens → action → observation, until something ends it."""

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.line import Line
from openmanus_rl.agent.player import CUT_MARK, EpisodeRequest, Player
from openmanus_rl.agent.sampling import EngineFailure
from openmanus_rl.agent.strategies import together

__all__ = ["CUT_MARK", "EngineFailure", "EpisodeRequest", "Player", "play_episode"]


async def play_episode(player: Player, request: EpisodeRequest, session: str, deadline: float) -> Episode:
    """Play one task once. A failure of world or engine is raised: the caller decides on a retry."""
    line = Line(player, request, await player.client.start(request.task), session, deadline)
    try:
        played = await request.strategy.play(line)
    finally:
        await together([each.close() for each in list(line.family.values())])
    played.episode.chosen = request.strategy.chooses
    return played.episode
