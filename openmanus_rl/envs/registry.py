"""The worlds by name. A user's own is `module:Class`."""

from typing import Any

from openmanus_rl.envs.alfworld import AlfWorld
from openmanus_rl.envs.base import Environment
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
    """A world with its options; an option it does not have is its constructor's TypeError."""
    return environment_class(name)(**options)
