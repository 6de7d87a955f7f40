"""TextCraft: craft a goal item by getting and crafting what it is made of."""

from openmanus_rl.envs.textcraft.world import TextCraft

__all__ = ["TextCraft"]
