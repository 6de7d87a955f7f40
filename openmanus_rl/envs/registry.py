"""The worlds by name. A user's own is `module:Class`."""

from typing import Any

from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.client.remote import is_remote, remote_world
from openmanus_rl.envs.maze import Maze
from openmanus_rl.envs.searchqa import SearchQA
from openmanus_rl.envs.sqlgym import SqlGym
from openmanus_rl.envs.textcraft import TextCraft
from openmanus_rl.envs.tools.todo import Todo
from openmanus_rl.envs.tools.weather import Weather
from openmanus_rl.envs.webshop import WebShop
from openmanus_rl.envs.wordle import Wordle
from openmanus_rl.registry import Registry

ENVIRONMENTS: Registry[type[Environment]] = Registry("environment")
for _world in (Maze, SearchQA, SqlGym, TextCraft, Todo, Weather, WebShop, Wordle):
    ENVIRONMENTS.register(_world.name)(_world)


def environment_class(name: str) -> type[Environment]:
    """The class behind a name, or an error that lists the known ones; `agentgym/<family>` is played elsewhere."""
    if is_remote(name):
        return remote_world(name)
    return ENVIRONMENTS.lookup(name)


def make_environment(name: str, **options: Any) -> Environment:
    """A world with its options; an option it does not have is its constructor's TypeError."""
    return environment_class(name)(**options)
