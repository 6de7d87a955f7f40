"""Which token a reward falls on: always a sampled one.

The environment's own rewards fall on the last sampled token of their turns. Any other score judges the whole episode
and falls on its last sampled token. Positions count from the beginning of the segment, prompt included.
"""

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.rewards import Allocation, reward_without_token, turn_rewards
from openmanus_rl.rewards import agentgym
from openmanus_rl.rewards.registry import ScoreFunction, find_score_function


def allocate_rewards(episode: Episode, reward_score_fn: str | ScoreFunction, score: float) -> Allocation:
    """The token rewards of an episode that `reward_score_fn` gave `score`; they sum to it."""
    function = find_score_function(reward_score_fn) if isinstance(reward_score_fn, str) else reward_score_fn
    return turn_rewards(episode) if function is agentgym.compute_score else last_token(episode, score)


def last_token(episode: Episode, score: float) -> Allocation:
    """The score on the episode's last sampled token."""
    allocation: Allocation = [[] for _ in episode.segments]
    for rewards, segment in reversed(list(zip(allocation, episode.segments, strict=True))):
        ends = [turn.end for turn in segment.turns if turn.token_ids]
        if ends:
            rewards.append((ends[-1] - 1, score))
            return allocation
    if score:
        raise reward_without_token(episode, score)
    return allocation
