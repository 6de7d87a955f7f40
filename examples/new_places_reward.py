"""A process reward: every turn that begins in a state where the episode has not been before is paid a little.

./train_ppo.sh "algorithm.reward_score_fn=agentgym + examples/new_places_reward.py:new_places"
"""

from collections.abc import Sequence
from typing import Any

from openmanus_rl.agent.episode import Turn
from openmanus_rl.rewards import process_reward

BONUS = 0.02


@process_reward
def new_places(turn: Turn, state: str | None, history: Sequence[Turn], **kwargs: Any) -> float:
    """Called for each turn; what it gives falls on the turn's last sampled token."""
    been_there = any(earlier.state_key == state for earlier in history)
    return 0.0 if state is None or been_there else BONUS
