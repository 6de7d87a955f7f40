"""`openmanus-rl data`: task files."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from openmanus_rl.cli.options import WorldName, WorldOptions, read_options
from openmanus_rl.envs.base import Split

app = typer.Typer(help="Task files (parquet): build and look.", no_args_is_help=True)


@app.command()
def build(
    name: WorldName,
    data_dir: Annotated[Path, typer.Option("--data_dir", help="Files go to DIR/ENV/.")] = Path("data"),
    train: Annotated[int, typer.Option(help="Training tasks.", min=1)] = 4096,
    validation: Annotated[int, typer.Option(help="Validation tasks.", min=1)] = 512,
    test: Annotated[int, typer.Option(help="Test tasks.", min=1)] = 512,
    options: WorldOptions = "{}",
) -> None:
    """Write train, validation and test tasks; no task is in two of them."""
    # Imported here, as below: worlds are listed and served where pyarrow is not installed.
    from openmanus_rl.data.tasks import build_tasks, tasks_path, write_tasks

    chosen = read_options(options)
    counts: dict[Split, int] = {"train": train, "validation": validation, "test": test}
    for split, count in counts.items():
        path = tasks_path(data_dir, name, split)
        tasks = build_tasks(name, split, count, chosen)
        write_tasks(path, tasks, chosen)
        typer.echo(f"{path}: {len(tasks)} tasks")


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A parquet file.")],
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
