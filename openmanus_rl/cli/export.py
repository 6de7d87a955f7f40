"""`openmanus-rl export`: a checkpoint as a model directory for others."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run directory, or one of its checkpoints.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Where the model is written.")],
    merge_lora: Annotated[bool, typer.Option("--merge-lora", help="Merge adapters into the weights.")] = False,
    best: Annotated[
        bool, typer.Option("--best", help="The run's best checkpoint by validation success. Default: its newest.")
    ] = False,
) -> None:
    """Write a checkpoint's model as a plain Hugging Face directory, with a card of what was trained on what."""
    from openmanus_rl.trainer.export import export as write

    checkpoint = write(source, output, merge_lora, best)
    typer.echo(f"{output} is the model of {checkpoint.path}")
