"""BabyAI: missions in rooms with doors and objects, told and done in words."""

from openmanus_rl.envs.babyai.world import BabyAI

__all__ = ["BabyAI"]
