"""`openmanus-rl play`: be the agent yourself."""

import sys
from itertools import islice
from typing import Annotated

import typer

from openmanus_rl.cli.options import WorldName, WorldOptions, read_options
from openmanus_rl.envs.base import Environment, Task
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.service.app import describe_world
from openmanus_rl.errors import UserError

ASK_EXPERT = "?"


def play(
    name: WorldName = "maze",
    number: Annotated[int, typer.Option("--task", min=0, help="Which training task.")] = 0,
    options: WorldOptions = "{}",
) -> None:
    """Play a world by hand: one action a line, ? for the expert's, Ctrl-D to stop."""
    world, chosen = environment_class(name), read_options(options)
    describe_world(world, chosen)  # refuses options that it does not have
    item_id = next(islice(world.item_ids("train", **chosen), number, None), None)
    if item_id is None:
        raise UserError(f"{name} has no training task {number}.", "Tasks count from 0; choose a smaller --task.")
    environment = world(**chosen)
    try:
        _play(environment, Task(name, item_id))
    finally:
        environment.close()


def _play(environment: Environment, task: Task) -> None:
    observation = environment.reset(task)
    typer.echo(f"{environment.instructions()}\n")
    episode_return = 0.0
    while True:
        _show(environment, observation.text)
        typer.echo("> ", nl=False)
        line = sys.stdin.readline()
        if not line:
            typer.echo(f"\nstopped, return {episode_return:+.2f}")
            return
        action = line.strip()
        if action == ASK_EXPERT:
            typer.echo(f"the expert says: {environment.expert_action() or 'nothing, it knows no action here'}")
            continue
        result = environment.step(action)
        observation = result.observation
        episode_return += result.reward
        typer.echo(f"reward {result.reward:+.2f}")
        if result.done:
            _show(environment, observation.text)
            typer.echo(f"{'success' if result.success else 'no success'}, return {episode_return:+.2f}")
            return


def _show(environment: Environment, observation: str) -> None:
    picture = environment.render()
    typer.echo(f"{picture}\n{observation}" if picture else observation)
