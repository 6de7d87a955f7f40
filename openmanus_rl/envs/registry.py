"""The worlds by name. A user's own is `module:Class`."""

import sys
from typing import Any

from openmanus_rl.envs.alfworld import AlfWorld
from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.distant import distant_world
from openmanus_rl.envs.install import python_for
from openmanus_rl.envs.maze import Maze
from openmanus_rl.envs.sciworld import SciWorld
from openmanus_rl.envs.textcraft import TextCraft
from openmanus_rl.envs.wordle import Wordle
from openmanus_rl.registry import Registry

ENVIRONMENTS: Registry[type[Environment]] = Registry("environment")
for _world in (AlfWorld, Maze, SciWorld, TextCraft, Wordle):
    ENVIRONMENTS.register(_world.name)(_world)


def environment_class(name: str) -> type[Environment]:
    """The class behind a name, or an error that lists the known ones."""
    return ENVIRONMENTS.lookup(name)


def make_environment(name: str, **options: Any) -> Environment:
    """A world with its options, here or in its virtualenv; an option that it does not have is a TypeError."""
    python = python_of(name)
    world = environment_class(name)
    return world(**options) if python == sys.executable else distant_world(world, name, python, options)


def python_of(name: str) -> str:
    """The Python that runs a world: that of its virtualenv where this one lacks something. A user's own runs here."""
    return sys.executable if ":" in name else python_for(environment_class(name))
