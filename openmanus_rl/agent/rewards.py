"""The world's own rewards on tokens: each on its turn's last sampled token, never on one that was not sampled."""

from collections.abc import Awaitable, Callable, Sequence

from openmanus_rl.agent.episode import Episode
from openmanus_rl.errors import UserError

Allocation = list[list[tuple[int, float]]]
"""For each segment of an episode: (position in the segment, reward)."""
TokenRewards = Callable[[Episode], Allocation]
"""What says which tokens of an episode are rewarded."""
Judge = Callable[[Episode], Awaitable[None]]
"""What scores an episode when it ends, while others play on; it notes the scores, or a failure, on the episode."""


def turn_rewards(episode: Episode) -> Allocation:
    """Each turn's environment reward on its last sampled token."""
    return on_turns(episode, [turn.reward for turn in episode.turns])


def on_turns(episode: Episode, values: Sequence[float]) -> Allocation:
    """A reward for each turn, on its last sampled token.

    That of a turn without sampled tokens falls on the turn before it, or on the first that has any.
    """
    value_of = iter(values)
    allocation: Allocation = [[] for _ in episode.segments]
    waiting = 0.0
    latest: list[tuple[int, float]] | None = None
    for rewards, segment in zip(allocation, episode.segments, strict=True):
        for turn in segment.turns:
            value = next(value_of)
            if turn.token_ids:
                rewards.append((turn.end - 1, value + waiting))
                latest, waiting = rewards, 0.0
            elif latest is not None:
                position, reward = latest[-1]
                latest[-1] = (position, reward + value)
            else:
                waiting += value
    if waiting:
        raise reward_without_token(episode, waiting)
    return allocation


def reward_without_token(episode: Episode, reward: float) -> UserError:
    """What to raise for a reward that has no token to fall on."""
    return UserError(
        f"task {episode.task.item_id}: a reward of {reward} and not one sampled token that it could fall on.",
        "Leave such an episode out of the batch, or give the agent room for a turn (model.max_context).",
    )
