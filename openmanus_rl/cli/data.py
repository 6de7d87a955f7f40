"""`openmanus-rl data`: task files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from openmanus_rl.cli.options import WorldName, WorldOptions, read_options
from openmanus_rl.envs.base import Split
from openmanus_rl.errors import UserError

AGENTGYM_OPTIONS: Mapping[str, Mapping[str, Any]] = {"textcraft": {"variants": 2}}
"""Options under which a world has as many tasks as AgentGym, where by itself it has fewer."""

app = typer.Typer(help="Task files (parquet): build and look.", no_args_is_help=True)


@app.command()
def build(
    name: WorldName,
    data_dir: Annotated[Path, typer.Option("--data_dir", help="Files go to DIR/ENV/.")] = Path("data"),
    train: Annotated[int | None, typer.Option(help="Training tasks; 4096 if not said.", min=1)] = None,
    validation: Annotated[int | None, typer.Option(help="Validation tasks; 512.", min=1)] = None,
    test: Annotated[int | None, typer.Option(help="Test tasks; 512.", min=1)] = None,
    agentgym: Annotated[
        bool,
        typer.Option("--agentgym", help="As many as AgentGym trains and evaluates on, where nothing else is said."),
    ] = False,
    options: WorldOptions = "{}",
) -> None:
    """Write train, validation and test tasks; no task is in two of them. A world with fewer gives all it has."""
    # Imported here, as below: worlds are listed and served where pyarrow is not installed.
    from openmanus_rl.data.tasks import build_tasks, tasks_path, write_tasks

    chosen = read_options(options)
    if agentgym:
        chosen = {**AGENTGYM_OPTIONS.get(name, {}), **chosen}
        if chosen:
            typer.echo(f"these are tasks with the options {json.dumps(chosen)}: set them in env.options too")
    usual = _agentgym_sizes(name) if agentgym else {"train": 4096, "validation": 512, "test": 512}
    said: dict[Split, int | None] = {"train": train, "validation": validation, "test": test}
    for split, number in said.items():
        count = number or usual[split]
        path = tasks_path(data_dir, name, split)
        tasks = build_tasks(name, split, count, chosen)
        write_tasks(path, tasks, chosen, asked=count)
        typer.echo(f"{path}: {len(tasks)} tasks")


def _agentgym_sizes(name: str) -> dict[Split, int]:
    """AgentGym's numbers of tasks; it measures on one split, so validation and test have its size."""
    from openmanus_rl.envs.client.remote import PREFIX, SPLIT_SIZES

    family = name.removeprefix(PREFIX)
    train, evaluation = SPLIT_SIZES.get(family, (0, 0))
    if not train:
        known = ", ".join(sorted(family for family, (count, _) in SPLIT_SIZES.items() if count))
        raise UserError(f"--agentgym: AgentGym has no training tasks of {name}.", f"It has some of {known}.")
    return {"train": train, "validation": evaluation, "test": evaluation}


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A parquet file.")],
    examples: Annotated[int, typer.Option(help="Rows to show.", min=0)] = 2,
) -> None:
    """What is in a parquet file."""
    from openmanus_rl.data.inspect import describe_parquet

    description = describe_parquet(file, examples)
    console = Console()
    console.print(f"{description.path}: {description.rows:,} rows, {description.bytes:,} bytes", highlight=False)
    table = Table("column", "type")
    for column, kind in description.columns.items():
        table.add_row(column, kind)
    console.print(table)
    for title, content in (("splits", description.splits), ("made from", description.made_from)):
        if content:
            console.print(f"{title}: {json.dumps(content)}", highlight=False, markup=False)
    for example in description.examples:
        console.print_json(json.dumps(example, default=str))
