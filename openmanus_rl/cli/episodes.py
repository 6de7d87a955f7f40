"""`openmanus-rl episodes`: what a run played, in the terminal."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from openmanus_rl.errors import UserError, did_you_mean
from openmanus_rl.files import write_text

if TYPE_CHECKING:
    from openmanus_rl.viewer.episodes import EpisodeTable, Row

app = typer.Typer(no_args_is_help=True, help="What a run played: list, read, search and compare its episodes.")

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a directory of episodes.")]
Name = Annotated[str, typer.Argument(metavar="EPISODE", help="As it is listed, e.g. train_step_000012:3.")]
Kind = Annotated[str, typer.Option(help="train or validation.")]
Outcome = Annotated[str, typer.Option(help="success, miss or failed.")]
Step = Annotated[int | None, typer.Option(help="Only this step.")]
Limit = Annotated[int, typer.Option("--n", min=1, help="How many to list, the newest first.")]


@app.command()
def show(
    run: Run,
    episode: Annotated[str | None, typer.Argument(metavar="EPISODE", help="e.g. train_step_000012:3.")] = None,
    kind: Kind = "",
    outcome: Outcome = "",
    step: Step = None,
    n: Limit = 20,
    colour: Annotated[str, typer.Option(help="Of tokens: advantage, log_prob, gap (engine − trainer), mask.")] = "",
    tokens: Annotated[bool, typer.Option("--tokens", help="A table of every sampled token.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the episode there, as one HTML file to share.")] = None,
) -> None:
    """List episodes; or read one, each token in the colour of its advantage, log-prob or mask."""
    from openmanus_rl.viewer.filters import filter_from
    from openmanus_rl.viewer.single import episode_page
    from openmanus_rl.viewer.terminal import COLOURINGS, episode_table, one_episode, token_table

    table = _table(run)
    if episode is None:
        at = "" if step is None else str(step)
        words = {"kind": kind, "outcome": outcome, "first_step": at, "last_step": at}
        rows = filter_from(words).choose(table.rows)[::-1]
        _console().print(episode_table(rows[:n]))
        if len(rows) > n:
            typer.echo(f"{n} of {len(rows)}; --n lists more")
        return
    row = _find(table, episode)
    record = table.record(row)
    if html is not None:
        write_text(html, episode_page(record))
        return
    chosen = colour or ("advantage" if row.entry.trained else "log_prob")
    if chosen not in COLOURINGS:
        raise UserError(f"--colour {colour} is not known. {did_you_mean(colour, COLOURINGS)}")
    _console().print(token_table(record) if tokens else one_episode(row, record, chosen))


@app.command()
def grep(run: Run, words: Annotated[str, typer.Argument(metavar="TEXT")], n: Limit = 20) -> None:
    """Episodes in which a text was said, done or seen, whatever its case; exit code 1 if there are none."""
    from openmanus_rl.viewer.search import Search, snippet
    from openmanus_rl.viewer.terminal import episode_name

    table = _table(run)
    search = Search(table, table.rows[::-1], words)
    search.go_on(n, seconds=float("inf"))
    for row in search.found[:n]:
        typer.echo(f"{episode_name(row)}: {snippet(table.record(row), words)}")
    if not search.is_done:
        typer.echo(f"the newest {n}; --n lists more")
    raise typer.Exit(0 if search.found else 1)


@app.command()
def diff(run: Run, one: Name, other: Name) -> None:
    """Two episodes turn by turn, and where they part."""
    from openmanus_rl.viewer.terminal import difference

    table = _table(run)
    first, second = (table.record(_find(table, name)) for name in (one, other))
    for part in difference(first, second, [one, other]):
        _console().print(part)


def _console() -> Console:
    return Console(markup=False, highlight=False, emoji=False)


def _table(run: Path) -> "EpisodeTable":
    from openmanus_rl.viewer.run import RunView
    from openmanus_rl.viewer.workspace import is_run

    if not run.is_dir() or not is_run(run):
        raise UserError(f"{run} is not a run directory.", "For example: runs/maze-grpo")
    table = RunView(run).episodes
    table.refresh(seconds=float("inf"))
    for problem in table.problems:
        typer.echo(f"not read: {problem}", err=True)
    return table


def _find(table: "EpisodeTable", name: str) -> "Row":
    match = re.fullmatch(r"(?:.*/)?(?P<file>[^/]+?)(?:\.jsonl)?:(?P<number>\d+)", name)
    if match is None:
        raise UserError(f"{name} is no episode.", "Write FILE:NUMBER as `episodes show RUN` lists it.")
    return table.find(f"{match['file']}.jsonl", int(match["number"]))
