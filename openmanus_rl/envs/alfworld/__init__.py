"""ALFWorld: household tasks in text, from a generator of our own or from the published game files."""

from openmanus_rl.envs.alfworld.world import AlfWorld

__all__ = ["AlfWorld"]
