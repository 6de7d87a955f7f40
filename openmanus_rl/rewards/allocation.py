"""Which tokens a reward falls on: always sampled ones, and always all of it.

Positions count from the beginning of the segment, prompt included.
"""

from typing import Literal

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.rewards import Allocation, on_turns, reward_without_token
from openmanus_rl.rewards.score import Judgement

AllocationName = Literal["per_turn", "last_token", "uniform_positive", "discounted"]


def allocate_rewards(
    episode: Episode, judgement: Judgement, how: AllocationName = "per_turn", discount: float = 0.9
) -> Allocation:
    """The token rewards of a judged episode. They sum to its score, whichever way."""
    if how == "per_turn":
        return _joined(on_turns(episode, judgement.turns), last_token(episode, judgement.outcome))
    if how == "last_token" or (how == "uniform_positive" and judgement.score <= 0):
        return last_token(episode, judgement.score)
    if how == "uniform_positive":
        return uniform(episode, judgement.score)
    return discounted(episode, judgement.score, discount)


def last_token(episode: Episode, score: float) -> Allocation:
    """The score on the episode's last sampled token."""
    allocation: Allocation = [[] for _ in episode.segments]
    if not score:
        return allocation
    for rewards, segment in reversed(list(zip(allocation, episode.segments, strict=True))):
        ends = [turn.end for turn in segment.turns if turn.token_ids]
        if ends:
            rewards.append((ends[-1] - 1, score))
            return allocation
    raise reward_without_token(episode, score)


def uniform(episode: Episode, score: float) -> Allocation:
    """The score in equal parts on every sampled token.

    Only for what was earned: the blame for a failure, spread like this, would fall on every token of a long attempt.
    """
    tokens = sum(len(turn.token_ids) for turn in episode.turns)
    if not tokens:
        raise reward_without_token(episode, score)
    share = score / tokens
    return [
        [(position, share) for turn in segment.turns for position in range(turn.start, turn.end)]
        for segment in episode.segments
    ]


def discounted(episode: Episode, score: float, discount: float) -> Allocation:
    """The score over the turns' last sampled tokens, each with `discount` times the share of the turn after it."""
    turns = len(episode.turns)
    if score and not turns:
        raise reward_without_token(episode, score)
    shares = [discount ** (turns - 1 - index) for index in range(turns)]
    total = sum(shares)
    return on_turns(episode, [score * share / total for share in shares])


def _joined(first: Allocation, second: Allocation) -> Allocation:
    return [one + other for one, other in zip(first, second, strict=True)]
