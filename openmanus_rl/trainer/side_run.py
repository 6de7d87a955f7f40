"""The run directory of `sft`, `evolve` and `dpo`: the same command goes on where it was stopped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openmanus_rl.config.load import config_to_yaml
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.files import write_json, write_text
from openmanus_rl.tracking.run_directory import RunDirectory, RunPaths
from openmanus_rl.tracking.versions import describe_versions

MODEL = "model"
"""Where what came of it is, in the run directory: a Hugging Face directory, or adapters as peft writes them."""


@contextmanager
def side_run(algorithm: str, output: Path, config: RunConfig) -> Iterator[RunDirectory]:
    """A new run directory, or one of the same config that is not finished; anything else at `output` is refused.

    Its first event says the algorithm: in the config that is what a training run would do.
    """
    text = config_to_yaml(config)
    paths = RunPaths(output)
    goes_on = paths.config.is_file() and paths.config.read_text() == text and not paths.summary.exists()
    if output.exists() and not goes_on:
        raise UserError(
            f"{output} is there already{' and finished' if paths.summary.exists() else ''}.",
            "Give a new directory with --output, or remove that one. A stopped run goes on with the same config.",
        )
    with RunDirectory(output) as run:
        if not goes_on:
            write_json(run.versions, describe_versions())
            write_text(run.config, text)
        run.log_event("resumed" if goes_on else "started", algorithm=algorithm)
        try:
            yield run
        except UserError:
            if not goes_on and _holds_only_its_beginning(run):
                shutil.rmtree(output)  # the corrected command may have the same name
            raise
        run.log_event("finished")


def _holds_only_its_beginning(run: RunDirectory) -> bool:
    """Whether nothing was made yet but the files that say what was asked for."""
    made = {path.name for path in run.path.iterdir() if not path.is_dir() or any(path.iterdir())}
    return made <= {run.versions.name, run.config.name, run.events.name, run.env_logs.name, ".lock"}
