"""From a preset and `key=value` words to a checked `RunConfig`.

Later wins: field defaults, then the preset's YAML, then the command line.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError, did_you_mean


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


def config_to_yaml(config: RunConfig) -> str:
    """The resolved tree as YAML."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False)


def _suggest(key: str, siblings: list[str]) -> str:
    """The closest sibling; a key put in the wrong section is looked for in all of them."""
    suggestion = did_you_mean(key, siblings)
    if suggestion.startswith("Did"):
        return suggestion
    leaf = key.rpartition(".")[2]
    same_leaf = [known for known in _all_keys(RunConfig) if known.rpartition(".")[2] == leaf]
    return f"Did you mean {' or '.join(same_leaf)}?" if same_leaf else suggestion


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _all_keys(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _read_preset(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
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
    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError as error:
        raise UserError(f"the value of {word!r} is not YAML: {error}") from error
    if isinstance(value, str):
        value = _number(value)
    return key.split("."), value


def _number(text: str) -> Any:
    """YAML reads 1e-3 as text; a user means a number."""
    try:
        return float(text)
    except ValueError:
        return text


def _set(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        branch = tree.setdefault(part, {})
        if not isinstance(branch, dict):
            raise UserError(f"{'.'.join(path)} cannot be set: {part} is {branch!r}, not a section.")
        tree = branch
    tree[path[-1]] = value
