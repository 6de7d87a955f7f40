"""Rollout strategies, one file each; `rollout.validation_strategy` names one, or a user's own as module:name."""

from openmanus_rl.agent.strategies import best_of_n  # noqa: F401 - it registers
from openmanus_rl.agent.strategies.base import STRATEGIES, Strategy, find_strategy, together
from openmanus_rl.agent.strategies.plain import Plain

__all__ = ["STRATEGIES", "Plain", "Strategy", "find_strategy", "together"]
