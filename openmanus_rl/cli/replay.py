"""`openmanus-rl replay`: recorded episodes once more, on the live world."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from openmanus_rl.cli.options import read_options
from openmanus_rl.envs.registry import make_environment
from openmanus_rl.errors import UserError


def replay(
    episodes: Annotated[
        str,
        typer.Argument(metavar="EPISODE", help="A file of episodes, FILE.jsonl, or one of them, FILE.jsonl:3."),
    ],
    options: Annotated[
        str | None, typer.Option("--options", help="The world's options as JSON. Default: those of the run.")
    ] = None,
) -> None:
    """Play recorded actions on the live world and compare every observation and reward; exit code 1 if one differs."""
    from openmanus_rl.agent.records import read_episodes
    from openmanus_rl.agent.replay import replay_episode

    path, number = _split(episodes)
    given = read_options(options) if options is not None else None
    recorded = list(enumerate(read_episodes(path), 1))
    if number is not None:
        if not 1 <= number <= len(recorded):
            raise UserError(f"{path} has no episode {number}.", f"It has {len(recorded)}, counted from 1.")
        recorded = [recorded[number - 1]]
    different = 0
    for index, episode in recorded:
        world = episode.task.env
        environment = make_environment(world, **(_options_of_run(path, world) if given is None else given))
        try:
            differences = replay_episode(episode, environment)
        finally:
            environment.close()
        different += bool(differences)
        told = "differs" if differences else "the same"
        typer.echo(f"{index}: {episode.task.item_id}, {len(episode.turns)} turns, {told}")
        for difference in differences:
            typer.echo(f"  {difference.replace(chr(10), chr(10) + '  ')}")
    typer.echo(f"{len(recorded) - different} of {len(recorded)} episodes are the same")
    if different and given is None and _config_of_run(path) is None:
        typer.echo("No run's config.yaml is beside them: give --options if the world was played with some.")
    raise typer.Exit(1 if different else 0)


def _split(text: str) -> tuple[Path, int | None]:
    name, colon, number = text.rpartition(":")
    path, index = (Path(name), int(number)) if colon and number.isdecimal() else (Path(text), None)
    if not path.is_file():
        raise UserError(
            f"there are no episodes at {path}.", "For example: runs/maze-grpo/episodes/train_step_000001.jsonl"
        )
    return path, index


def _config_of_run(path: Path) -> Path | None:
    """The config of the run that wrote the episodes; None for a file elsewhere."""
    config = path.resolve().parent.parent / "config.yaml"
    return config if config.is_file() else None


def _options_of_run(path: Path, world: str) -> Mapping[str, Any]:
    """What the run played the world with."""
    config = _config_of_run(path)
    if config is None:
        return {}
    stored = yaml.safe_load(config.read_text())
    several = [entry for entry in stored.get("envs", {}).values() if entry["name"] == world]
    options: Mapping[str, Any] = (several[0] if several else stored["env"]).get("options") or {}
    return options
