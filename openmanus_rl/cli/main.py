"""`openmanus-rl`: the verbs. A user's mistake is one clear message; ours is a whole stack trace."""

import sys

import typer

from openmanus_rl.cli import data, env, evaluation, train
from openmanus_rl.errors import UserError

app = typer.Typer(
    name="openmanus-rl",
    help="Reinforcement learning for language-model agents in interactive environments.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command(name="train")(train.train)
app.command(name="sft")(train.sft)
app.command(name="eval")(evaluation.evaluate)
app.add_typer(env.app, name="env")
app.add_typer(data.app, name="data")


def main() -> None:
    """Entry point of the console command."""
    try:
        app()
    except UserError as error:
        print(f"openmanus-rl: error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("openmanus-rl: stopped", file=sys.stderr)
        sys.exit(130)
