"""`openmanus-rl env`: which worlds there are, installing, serving and checking one, recording what is played."""

import contextlib
import os
import socket
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from starlette.types import ASGIApp

from openmanus_rl.cli.options import WorldName, WorldOptions, read_options
from openmanus_rl.envs.access import TOKEN_VARIABLE, listen, url_of
from openmanus_rl.envs.cassette import Recorder, ReplayServer, forwarding_app, read_cassette
from openmanus_rl.envs.check.run import CHECKS, FAST_CHECKS, check_server, check_world
from openmanus_rl.envs.install import install
from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.registry import ENVIRONMENTS, environment_class, python_of
from openmanus_rl.envs.service.app import build_app
from openmanus_rl.envs.service.serve import main as serve_main
from openmanus_rl.envs.service.serve import run_app
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.envs.service.wire import RefusePages

FORMS_LISTED = 4
"""Forms of actions that the list shows of a world; `openmanus-rl play` shows all."""

Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port.")]

app = typer.Typer(help="Worlds: list them, install what one needs, serve, check or record one.", no_args_is_help=True)


@app.command("list")
def list_environments() -> None:
    """The built-in worlds. Your own is used as module:Class wherever a name is asked for."""
    table = Table("name", "actions", "success", "score")
    for name, world in sorted(ENVIRONMENTS.items()):
        low, high = world.score_range
        shown = [form.shown for form in world.grammar.forms]
        actions = ", ".join(shown[:FORMS_LISTED]) + (", …" if len(shown) > FORMS_LISTED else "")
        table.add_row(name, actions, world.success_rule, f"{low:g} … {high:g}")
    Console().print(table)


@app.command("install")
def install_environment(name: WorldName) -> None:
    """Make a virtualenv with the packages that a world needs; serving and training use it by themselves."""
    install(environment_class(name), lambda what: print(f"{name}: {what}", flush=True))
    print(f"{name} is installed")


@app.command()
def serve(
    name: WorldName,
    host: Annotated[str, typer.Option(help="Other than loopback needs a token.")] = "127.0.0.1",
    port: Port = 36001,
    options: WorldOptions = "{}",
    token: Annotated[
        str | None, typer.Option(envvar=TOKEN_VARIABLE, show_envvar=True, help="Requests must bear it.")
    ] = None,
    max_sessions: Annotated[
        int, typer.Option("--max-sessions", min=1, help="Further ones are refused with a Retry-After.")
    ] = Limits.max_sessions,
    idle_seconds: Annotated[
        float, typer.Option("--idle-seconds", min=0.1, help="An unused session is closed after this long.")
    ] = Limits.idle_seconds,
    step_seconds: Annotated[
        float, typer.Option("--step-seconds", min=0.1, help="A step that takes longer ends its session as failed.")
    ] = Limits.step_seconds,
) -> None:
    """Serve a world over HTTP until Ctrl-C: the native /v1 routes and AgentGym's."""
    arguments = ["--env", name, "--host", host, "--port", str(port), "--options", options]
    arguments += ["--max-sessions", str(max_sessions)]
    arguments += ["--idle-seconds", str(idle_seconds), "--step-seconds", str(step_seconds)]
    if token:
        os.environ[TOKEN_VARIABLE] = token  # a process's arguments are there for all to see
    python = python_of(name)
    if python != sys.executable:
        os.execv(python, [python, "-m", "openmanus_rl.envs.service", *arguments])
    try:
        code = serve_main(arguments)
    except KeyboardInterrupt:  # the way to end it, so no failure; its sessions are closed by now
        code = 0
    raise typer.Exit(code)


@app.command()
def check(
    target: Annotated[str, typer.Argument(metavar="ENV|URL", help="A world's name, or the address of its server.")],
    options: WorldOptions = "{}",
    items: Annotated[list[str] | None, typer.Option("--item", help="With a URL: a task to check on.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what takes minutes: memory.")] = False,
    seconds: Annotated[float, typer.Option(help="How long one call to the world may take.")] = 10.0,
) -> None:
    """Check the promises that training relies on; the exit code is 1 if one is broken."""
    checks = CHECKS if everything else FAST_CHECKS
    if target.startswith(("http://", "https://")):
        results = check_server(target, items or (), checks=checks, seconds=seconds)
    else:
        results = check_world(target, read_options(options), checks=checks, seconds=seconds)
    table = Table("check", "result", "what was seen")
    colours = {"passed": "green", "failed": "red", "not checked": "yellow"}
    failed = False
    first = next(results)  # where nothing can be checked, the error comes here and no table before it
    console = Console()
    with Live(table, console=console):
        for result in chain([first], results):
            failed |= result.status == "failed"
            table.add_row(result.name, Text(result.status, colours[result.status]), Text(result.detail))
    if not console.is_terminal:  # there, a live table's last line is not ended
        console.print()
    raise typer.Exit(1 if failed else 0)


@app.command()
def record(
    target: Annotated[str, typer.Argument(metavar="ENV|URL", help="A world to serve, or a server to stand before.")],
    cassette: Annotated[Path, typer.Argument(metavar="FILE", help="The file that the traffic goes to.")],
    port: Port = 36001,
    options: WorldOptions = "{}",
) -> None:
    """Serve on loopback until Ctrl-C and write all traffic to a file: that of a run whose env.urls has this address."""
    with contextlib.ExitStack() as until_ctrl_c:
        if target.startswith(("http://", "https://")):
            served: ASGIApp = forwarding_app(target)
        elif python_of(target) == sys.executable:
            served = build_app(environment_class(target), read_options(options), spec=target)
        else:  # the world runs in its virtualenv, behind a server of its own
            logs = until_ctrl_c.enter_context(tempfile.TemporaryDirectory())
            servers = launch_servers(target, options=read_options(options), log_dir=Path(logs))
            served = forwarding_app(until_ctrl_c.enter_context(servers).urls[0])
        listener = listen("127.0.0.1", port, "--port")
        recorder = Recorder(served, cassette)
        typer.echo(f"{target} is recorded at {url_of(listener)}, to {cassette}")
        _until_ctrl_c(recorder, listener)


@app.command()
def replay(
    cassette: Annotated[Path, typer.Argument(metavar="FILE", help="A file made by `env record`.")],
    port: Port = 36001,
) -> None:
    """Play a cassette back until Ctrl-C, without its world; the exit code is 1 if a player deviated from it."""
    server = ReplayServer(read_cassette(cassette))
    listener = listen("127.0.0.1", port, "--port")
    typer.echo(f"{cassette} is played back at {url_of(listener)}")
    _until_ctrl_c(server.app(), listener)
    for deviation in server.deviations:
        typer.echo(deviation, err=True)
    raise typer.Exit(1 if server.deviations else 0)


def _until_ctrl_c(served: ASGIApp, listener: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        run_app(RefusePages(served), listener)
