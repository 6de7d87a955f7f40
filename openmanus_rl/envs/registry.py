"""The worlds by name. A user's own is `module:Class`."""

import inspect
import sys
from typing import Any

from openmanus_rl.envs.alfworld import AlfWorld
from openmanus_rl.envs.babyai import BabyAI
from openmanus_rl.envs.base import Environment
from openmanus_rl.envs.distant import distant_world
from openmanus_rl.envs.gym import GymWorld
from openmanus_rl.envs.install import python_for
from openmanus_rl.envs.maze import Maze
from openmanus_rl.envs.sciworld import SciWorld
from openmanus_rl.envs.searchqa import SearchQA
from openmanus_rl.envs.sqlgym import SqlGym
from openmanus_rl.envs.textcraft import TextCraft
from openmanus_rl.envs.tools.todo import Todo
from openmanus_rl.envs.tools.weather import Weather
from openmanus_rl.envs.webshop import WebShop
from openmanus_rl.envs.wordle import Wordle
from openmanus_rl.errors import UserError
from openmanus_rl.registry import Registry

ENVIRONMENTS: Registry[type[Environment]] = Registry("environment")
for _world in (AlfWorld, BabyAI, GymWorld, Maze, SciWorld, SearchQA, SqlGym, TextCraft, Todo, Weather, WebShop, Wordle):
    ENVIRONMENTS.register(_world.name)(_world)


def environment_class(name: str) -> type[Environment]:
    """The class behind a name, or an error that lists the known ones; `agentgym/<family>` is played elsewhere."""
    if name.startswith("agentgym/"):
        from openmanus_rl.envs.client.remote import remote_world  # a client is nothing that a world needs

        return remote_world(name)
    return ENVIRONMENTS.lookup(name)


def make_environment(name: str, **options: Any) -> Environment:
    """A world with its options, here or in its virtualenv; an option that it does not take is a `UserError`."""
    from openmanus_rl.envs.options import refused_options  # pydantic is nothing that a world's own process needs

    python = python_of(name)
    world = environment_class(name)
    refused = refused_options(world, options)
    if refused:
        raise UserError(refused, f"Its options: {', '.join(inspect.signature(world).parameters) or 'none'}.")
    return world(**options) if python == sys.executable else distant_world(world, name, python, options)


def python_of(name: str) -> str:
    """The Python that runs a world: that of its virtualenv where this one lacks something. A user's own runs here."""
    return sys.executable if ":" in name else python_for(environment_class(name))
