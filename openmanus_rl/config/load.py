"""From a preset and `key=value` words to a checked `RunConfig`.

Later wins: field defaults, then the preset's YAML, then the command line.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError


def load_config(preset: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a run: the preset's keys under the command line's."""
    tree: dict[str, Any] = _read_preset(preset) if preset else {}
    for word in overrides:
        _set(tree, *_parse_override(word))
    return config_from_dict(tree)


def config_from_dict(tree: dict[str, Any]) -> RunConfig:
    """Validate a nested dict; a mistyped key is answered with the right one."""
    for key, known in unknown_keys(tree, RunConfig):
        raise UserError(f"{key} is not a key. {_suggest(key, known)}")
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "model_type":
            raise UserError(f"{key} is a section, not a value.", f"Set its keys: {key}.NAME=VALUE.") from error
        raise UserError(f"{key}={first['input']!r}: {first['msg'][0].lower()}{first['msg'][1:]}.") from error


def unknown_keys(tree: Any, model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Dotted keys of `tree` that `model` does not have, each with its valid siblings."""
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if key not in model.model_fields:
            yield dotted, [f"{prefix}{name}" for name in model.model_fields]
            continue
        inner = model.model_fields[key].annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from unknown_keys(value, inner, f"{dotted}.")
        elif (section := section_by_name(inner)) and isinstance(value, dict):
            for name, entries in value.items():
                yield from unknown_keys(entries, section, f"{dotted}.{name}.")


def section_by_name(annotation: Any) -> type[BaseModel] | None:
    """The section that a field such as `cluster.pools` holds under names of the user's own."""
    arguments = get_args(annotation) if get_origin(annotation) is dict else ()
    section = arguments[1] if arguments else None
    return section if isinstance(section, type) and issubclass(section, BaseModel) else None


def override_keys(overrides: Sequence[str]) -> list[str]:
    """The dotted keys that the command line sets."""
    return [".".join(_parse_override(word)[0]) for word in overrides]


def given_keys(config: BaseModel, prefix: str = "") -> Iterator[str]:
    """Dotted keys that were set, as opposed to left at their defaults."""
    for name in config.model_fields_set:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from given_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def differing_keys(one: BaseModel, other: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys on which two configs differ, with both values as they stand in YAML."""
    for name in type(one).model_fields:
        first, second = getattr(one, name), getattr(other, name)
        if isinstance(first, BaseModel):
            yield from differing_keys(first, second, f"{prefix}{name}.")
        elif section_by_name(type(one).model_fields[name].annotation) and first.keys() == second.keys():
            for key in first:
                yield from differing_keys(first[key], second[key], f"{prefix}{name}.{key}.")
        elif first != second:
            yield f"{prefix}{name}", *(config.model_dump(include={name})[name] for config in (one, other))


def config_to_yaml(config: RunConfig) -> str:
    """The resolved tree as YAML."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False)


def _suggest(key: str, siblings: list[str]) -> str:
    """The key of this name in another section, else the closest sibling."""
    leaf = _leaf(key)
    elsewhere = [known for known in _all_keys(RunConfig) if _leaf(known) == leaf]
    if elsewhere:
        return f"Did you mean {' or '.join(elsewhere)}?"
    # Compared without the section, which would make every sibling look alike.
    by_leaf = {_leaf(sibling): sibling for sibling in siblings}
    close = difflib.get_close_matches(leaf, by_leaf, n=1)
    return f"Did you mean {by_leaf[close[0]]}?" if close else f"Known: {', '.join(siblings)}."


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _all_keys(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _read_preset(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"there is no preset at {path}.", "Presets are the YAML files in examples/.") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise UserError(f"{path} must hold keys and values, not {type(tree).__name__}.")
    return tree


def _parse_override(word: str) -> tuple[list[str], Any]:
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise UserError(f"{word!r} is not an override.", "Write key=value, e.g. trainer.steps=20.")
    path = key.split(".")
    if _takes_text(path) and text != "null":
        return path, text
    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError as error:
        raise UserError(f"the value of {word!r} is not YAML: {error}") from error
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    return path, value


_EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+")
"""YAML reads 1e-3 as text; a user means a number."""


def _takes_text(path: list[str]) -> bool:
    """Whether the field at `path` holds text: then `7` is a name, not a number."""
    annotation: Any = RunConfig
    for part in path:
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return False
        field = annotation.model_fields.get(part)
        annotation = field.annotation if field else None
    return annotation in (str, str | None)


def _set(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        branch = tree.setdefault(part, {})
        if not isinstance(branch, dict):
            raise UserError(f"{'.'.join(path)} cannot be set: {part} is {branch!r}, not a section.")
        tree = branch
    tree[path[-1]] = value
