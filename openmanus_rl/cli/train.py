"""`openmanus-rl train`."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from openmanus_rl.cli.presets import choose_preset, flag_overrides, value_of
from openmanus_rl.cli.view import page_beside
from openmanus_rl.config.effect import refuse_other_verbs
from openmanus_rl.config.load import config_to_yaml, override_keys

Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides of the config.")]
Preset = Annotated[Path | None, typer.Option("--config", help="A preset (YAML). Default: the one in examples/.")]
Algorithm = Annotated[str | None, typer.Option(help="grpo (the default) or ppo: which preset in examples/.")]
EnvName = Annotated[
    str | None, typer.Option("--env_name", help="A name of `openmanus-rl env list`, or your own module:Class.")
]
NumServers = Annotated[int | None, typer.Option("--num_servers", help="Environment servers to start.")]
BasePort = Annotated[int | None, typer.Option("--base_port", help="Port of the first server. Default: free ports.")]
DataDir = Annotated[str | None, typer.Option("--data_dir", help="Where the task files are, or will be made.")]
Model = Annotated[str | None, typer.Option("--model", help="Hugging Face directory or hub id. Default: tiny.")]
Suffix = Annotated[str | None, typer.Option("--exp_name_suffix", help="Appended to the run directory's name.")]
View = Annotated[bool, typer.Option("--view", help="Serve the page of the runs beside it, and say where.")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print the resolved config and stop.")]


def train(
    overrides: Overrides = None,
    config: Preset = None,
    algorithm: Algorithm = None,
    env_name: EnvName = None,
    num_servers: NumServers = None,
    base_port: BasePort = None,
    data_dir: DataDir = None,
    model: Model = None,
    exp_name_suffix: Suffix = None,
    view: View = False,
    print_config: PrintConfig = False,
) -> None:
    """Train an agent; an unfinished run of the same config goes on where it stopped.

    Ctrl-C finishes the step, saves, and exits with code 130. trainer.resume=RUN goes on with that run and its config.
    """
    words = flag_overrides(env_name, num_servers, base_port, data_dir, model, exp_name_suffix) + (overrides or [])
    refuse_other_verbs(override_keys(words), "train")
    resumed = value_of("trainer.resume", words)
    goes_on = config is None and resumed not in (None, "auto", "never")
    preset = None if goes_on else choose_preset(config, algorithm or "grpo", words)
    # Imported here: a mistake in the command line is told before torch is loaded.
    from openmanus_rl.trainer.checked_config import load_checked_config
    from openmanus_rl.trainer.continuation import stored_config

    resolved = (
        load_checked_config(preset, words, algorithm if config else None)
        if preset
        else stored_config(Path(str(resumed)), words, algorithm)
    )
    if print_config:
        typer.echo(config_to_yaml(resolved), nl=False)
        return
    from openmanus_rl.trainer.run import train as run

    with page_beside(Path(resolved.trainer.runs_dir)) if view else nullcontext():
        run(resolved, preset)
