"""Files that a user names in a world's options: read whole, or an error that says which line is wrong."""

import json
from pathlib import Path
from typing import Any

from openmanus_rl.errors import UserError


def read_text(path: Path, world: str, option: str) -> str:
    """The file's text, in UTF-8."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{world}: {path} cannot be read: {error.strerror}.", _look_at(option)) from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{world}: line {line} of {path} is not UTF-8.", f"Save the file as UTF-8. {_look_at(option)}"
        ) from error


def read_json(path: Path, world: str, option: str, kind: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """What the file holds as JSON: a list, or an object."""
    try:
        content = json.loads(read_text(path, world, option))
    except json.JSONDecodeError as error:
        raise UserError(
            f"{world}: line {error.lineno} of {path} is not JSON: {error.msg} (column {error.colno}).",
            f"Is the file whole? {_look_at(option)}",
        ) from error
    if not isinstance(content, kind):
        raise UserError(f"{world}: {path} holds no JSON {'list' if kind is list else 'object'}.", _look_at(option))
    return content


def lacking(path: Path, world: str, option: str, place: int, error: Exception) -> UserError:
    """That an entry of a file, counted from 1, is not built as it should be."""
    told = f"lacks {error}" if isinstance(error, KeyError) else f"cannot be understood: {error}"
    return UserError(f"{world}: entry {place} of {path} {told}.", _look_at(option))


def _look_at(option: str) -> str:
    return f"Look at env.options.{option}."
