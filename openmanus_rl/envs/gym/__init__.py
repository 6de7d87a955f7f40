"""Any environment of Gymnasium that speaks in text, or is made to."""

from openmanus_rl.envs.gym.world import GymWorld

__all__ = ["GymWorld"]
