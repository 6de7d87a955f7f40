"""What several verbs take."""

import json
from typing import Annotated, Any

import typer

from openmanus_rl.envs.registry import ENVIRONMENTS
from openmanus_rl.errors import UserError

WorldName = Annotated[
    str, typer.Argument(metavar="ENV", help=f"{', '.join(sorted(ENVIRONMENTS))}, or your own module:Class.")
]
WorldOptions = Annotated[str, typer.Option("--options", help="The world's options as JSON.")]


def read_options(text: str) -> dict[str, Any]:
    """The value of --options."""
    hint = "For example: --options '{\"size\": 5}'"
    try:
        options = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"--options is not JSON: {error}", hint) from error
    if not isinstance(options, dict):
        raise UserError(f"--options is {text}, not a JSON object.", hint)
    return options
