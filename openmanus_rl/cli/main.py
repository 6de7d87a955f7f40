"""`openmanus-rl`: the verbs. A user's mistake is one clear message; ours is a whole stack trace."""

import sys

import typer

from openmanus_rl.cli import data, env, episodes, evaluation, export, improve, models, plan, play, replay, train, view
from openmanus_rl.errors import UserError

MISTAKE = 2
STOPPED = 130
"""Exit codes: a user's mistake, and Ctrl-C (as shells count it: 128 + SIGINT)."""

app = typer.Typer(
    name="openmanus-rl",
    help="Reinforcement learning for language-model agents in interactive environments.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command(name="train")(train.train)
app.command(name="plan")(plan.plan)
app.command(name="sft")(improve.sft)
app.command(name="evolve")(improve.evolve)
app.command(name="dpo")(improve.dpo)
app.command(name="eval")(evaluation.evaluate)
app.command(name="export")(export.export)
app.command(name="play")(play.play)
app.command(name="replay")(replay.replay)
app.command(name="view")(view.view)
app.add_typer(episodes.app, name="episodes")
app.add_typer(env.app, name="env")
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")


def main() -> None:
    """Entry point of the console command."""
    try:
        app()
    except UserError as error:
        _fail(str(error), MISTAKE)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_TRAINING:
            raise
        hint = "In the repository: scripts/setup.sh train, or pip install -e '.[train]'"
        _fail(f"{error.name} is not installed.\n    {hint}", MISTAKE)
    except SystemExit as end:
        if end.code == STOPPED:  # what typer makes of Ctrl-C
            _fail("stopped", STOPPED)
        raise


_OF_TRAINING = {"torch", "transformers", "tokenizers", "safetensors", "gguf", "peft", "tensordict", "numpy", "pyarrow"}
_OF_TRAINING |= {"tensorboard", "matplotlib", "ray", "psutil", "math_verify", "sacrebleu"}
"""What the package goes without where only worlds are served."""


def _fail(message: str, code: int) -> None:
    kind = "" if code == STOPPED else "error: "
    print(f"openmanus-rl: {kind}{message}", file=sys.stderr)
    sys.exit(code)
