"""ScienceWorld: elementary science, done in a simulated laboratory and house."""

from openmanus_rl.envs.sciworld.world import SciWorld

__all__ = ["SciWorld"]
