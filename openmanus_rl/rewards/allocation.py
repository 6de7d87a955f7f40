"""Which token a reward falls on: always a sampled one.

The environment's own rewards fall on the last sampled token of their turns. Any other score judges the whole episode
and falls on its last sampled token. Positions count from the beginning of the segment, prompt included.
"""

from openmanus_rl.agent.episode import Episode
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import agentgym
from openmanus_rl.rewards.registry import ScoreFunction, find_score_function

Allocation = list[list[tuple[int, float]]]
"""For each segment: (position in the segment, reward)."""


def allocate_rewards(episode: Episode, reward_score_fn: str | ScoreFunction, score: float) -> Allocation:
    """The token rewards of an episode that `reward_score_fn` gave `score`; they sum to it."""
    function = find_score_function(reward_score_fn) if isinstance(reward_score_fn, str) else reward_score_fn
    return per_turn(episode) if function is agentgym.compute_score else last_token(episode, score)


def per_turn(episode: Episode) -> Allocation:
    """Each turn's environment reward on its last sampled token.

    That of a turn without sampled tokens falls on the turn before it, or on the first that has any.
    """
    allocation: Allocation = [[] for _ in episode.segments]
    waiting = 0.0
    latest: list[tuple[int, float]] | None = None
    for rewards, segment in zip(allocation, episode.segments, strict=True):
        for turn in segment.turns:
            if turn.token_ids:
                rewards.append((turn.end - 1, turn.reward + waiting))
                latest, waiting = rewards, 0.0
            elif latest is not None:
                position, reward = latest[-1]
                latest[-1] = (position, reward + turn.reward)
            else:
                waiting += turn.reward
    if waiting:
        raise _nowhere(episode, waiting)
    return allocation


def last_token(episode: Episode, score: float) -> Allocation:
    """The score on the episode's last sampled token."""
    allocation: Allocation = [[] for _ in episode.segments]
    for rewards, segment in reversed(list(zip(allocation, episode.segments, strict=True))):
        ends = [turn.end for turn in segment.turns if turn.token_ids]
        if ends:
            rewards.append((ends[-1] - 1, score))
            return allocation
    if score:
        raise _nowhere(episode, score)
    return allocation


def _nowhere(episode: Episode, reward: float) -> UserError:
    return UserError(
        f"task {episode.task.item_id}: a reward of {reward} and not one sampled token that it could fall on.",
        "Leave such an episode out of the batch, or give the agent room for a turn (model.max_context).",
    )
