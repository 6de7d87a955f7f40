"""`openmanus-rl view`: the page of a run, or of a directory of runs."""

import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

PAGE_SECONDS = 10.0
"""How long the page beside a run may take to end."""


def view(
    runs: Annotated[Path, typer.Argument(metavar="RUN|RUNS", help="A run, or a directory of runs.")] = Path("runs"),
    host: Annotated[str, typer.Option(help="Where to listen; off loopback the address carries a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for a free one.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    with_stdin: Annotated[bool, typer.Option("--with-stdin", hidden=True, help="End when stdin ends.")] = False,
) -> None:
    """Show what agents do: a page on this machine, live while a run trains. Ctrl-C ends it."""
    from openmanus_rl.viewer.serve import ViewerServer

    server = ViewerServer(runs, host, port)
    typer.echo(f"{runs}: {server.url}")
    if open_browser:
        webbrowser.open(server.url)
    if with_stdin:
        threading.Thread(target=_call_at_end_of_stdin, args=[server.stop], daemon=True).start()
    server.run()


@contextmanager
def page_beside(runs: Path) -> Iterator[None]:
    """The page of `runs` in a process of its own, for as long as the block runs and this process lives."""
    runs.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "openmanus_rl.cli", "view", str(runs), "--with-stdin"]
    # Its own session: Ctrl-C is for the run, which ends the page when it has ended itself.
    page = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        assert page.stdin is not None
        page.stdin.close()
        try:
            page.wait(PAGE_SECONDS)
        except subprocess.TimeoutExpired:
            page.kill()
            page.wait()


def _call_at_end_of_stdin(stop: Callable[[], None]) -> None:
    sys.stdin.buffer.read()
    stop()
