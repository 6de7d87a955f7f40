"""`openmanus-rl plan`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmanus_rl.cli.presets import choose_preset, flag_overrides
from openmanus_rl.cli.train import Algorithm, BasePort, DataDir, EnvName, Model, NumServers, Preset

if TYPE_CHECKING:
    from openmanus_rl.trainer.plan import Plan

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="CONFIG|KEY=VALUE", help="A preset (YAML) as with --config, and overrides of it."),
]


def plan(
    words: Words = None,
    config: Preset = None,
    algorithm: Algorithm = None,
    env_name: EnvName = None,
    num_servers: NumServers = None,
    base_port: BasePort = None,
    data_dir: DataDir = None,
    model: Model = None,
) -> None:
    """Memory and time of a training run, from a try of about a minute; what cannot fit is refused.

    Takes the words of `train`. It builds the data and the model that the run would build, and nothing else stays.
    """
    given = list(words or [])
    if config is None and given and "=" not in given[0]:
        config = Path(given.pop(0))
    overrides = flag_overrides(env_name, num_servers, base_port, data_dir, model, None) + given
    preset = choose_preset(config, algorithm or "grpo", overrides)
    # Imported here: a mistake in the command line is told before torch is loaded.
    from openmanus_rl.trainer.checked_config import load_checked_config
    from openmanus_rl.trainer.plan import make_plan

    made = make_plan(load_checked_config(preset, overrides, algorithm if config else None), typer.echo)
    for line in report(made):
        typer.echo(line)
    made.check()


def report(made: "Plan") -> list[str]:
    """The plan as lines of text."""
    from openmanus_rl.tracking.console import duration
    from openmanus_rl.trainer.footprint import PARTS

    trainer, calibration = made.config.trainer, made.calibration
    shown = [part for part in PARTS if any(process.parts.get(part) for process in made.processes)]
    lines = ["", _row("memory in GB", [*shown, "in all"])]
    for process in made.processes:
        name = process.name if process.count == 1 else f"{process.count} x {process.name}"
        sizes = [process.parts.get(part, 0.0) for part in shown] + [process.total]
        lines.append(_row(name, [f"{size / 2**30:.2f}" if size else "" for size in sizes]))
    lines.append(f"{made.total / 2**30:.2f} GB in all; {made.available / 2**30:.2f} GB are free")
    parts = made.parts_of_a_step
    lines += ["", _row("time in seconds", [*parts, "in all"])]
    lines.append(_row("a step", [f"{seconds:.2f}" for seconds in (*parts.values(), made.step_seconds)]))
    lines.append(f"a validation, every {trainer.validate_every} steps: {calibration.validation_seconds:.1f} s")
    lines.append(f"{trainer.steps} steps: {duration(made.run_seconds)}, if episodes stay as long as they are now")
    if calibration.share < 1:
        lines.append(f"tried with {calibration.share:.0%} of a step's tasks; the rest is extrapolated")
    return lines


def _row(name: str, cells: list[str]) -> str:
    return f"{name:<20}" + "".join(f"{cell:>13}" for cell in cells)
