"""Credit and losses: pure functions on tensors, found by name. Importing the package registers the built-in ones."""

from openmanus_rl.algorithms import gae, grpo, loss_ppo, turn_gae

__all__ = ["gae", "grpo", "loss_ppo", "turn_gae"]
