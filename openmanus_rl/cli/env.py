"""`openmanus-rl env`: which worlds there are, installing what one needs, and serving one."""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from openmanus_rl.cli.options import WorldName, WorldOptions
from openmanus_rl.envs.install import install
from openmanus_rl.envs.registry import ENVIRONMENTS, environment_class, python_of
from openmanus_rl.envs.service.serve import main as serve_main

app = typer.Typer(help="Worlds: list them, install what one needs, serve one over HTTP.", no_args_is_help=True)


@app.command("list")
def list_environments() -> None:
    """The built-in worlds. Your own is used as module:Class wherever a name is asked for."""
    table = Table("name", "actions", "success", "score")
    for name, world in sorted(ENVIRONMENTS.items()):
        low, high = world.score_range
        table.add_row(name, world.grammar.describe(), world.success_rule, f"{low:g} … {high:g}")
    Console().print(table)


@app.command("install")
def install_environment(name: WorldName) -> None:
    """Make a virtualenv with the packages that a world needs; serving and training use it by themselves."""
    install(environment_class(name), lambda what: print(f"{name}: {what}", flush=True))
    print(f"{name} is installed")


@app.command()
def serve(
    name: WorldName,
    host: Annotated[str, typer.Option(help="Other than loopback needs a token in the environment.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free port.")] = 36001,
    options: WorldOptions = "{}",
) -> None:
    """Serve a world over HTTP until Ctrl-C: the native /v1 routes and AgentGym's."""
    arguments = ["--env", name, "--host", host, "--port", str(port), "--options", options]
    python = python_of(name)
    if python != sys.executable:
        os.execv(python, [python, "-m", "openmanus_rl.envs.service", *arguments])
    try:
        code = serve_main(arguments)
    except KeyboardInterrupt:  # the way to end it, so no failure; its sessions are closed by now
        code = 0
    raise typer.Exit(code)
