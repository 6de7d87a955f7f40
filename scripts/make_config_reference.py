"""Writes the reference of all config keys into docs/configuration.md, from the schema itself.

    .venv/bin/python scripts/make_config_reference.py

A key's docstring is its meaning there, so that help, schema and page cannot drift apart.
"""

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from openmanus_rl.agent.strategies import STRATEGIES
from openmanus_rl.algorithms.registry import ESTIMATORS, LOSSES, EstimatorEntry, LossEntry
from openmanus_rl.config.load import section_by_name
from openmanus_rl.config.schema import RunConfig

STRATEGY = "rollout.validation_strategy"
PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
BEGIN = "<!-- Made by scripts/make_config_reference.py from openmanus_rl/config/schema.py: do not edit below. -->"
END = "<!-- The end of what the script made. -->"
HEAD = "| key | kind | default | meaning |\n|---|---|---|---|"
BOUNDS = ((annotated_types.Ge, "ge", "≥"), (annotated_types.Gt, "gt", ">"), (annotated_types.Le, "le", "≤"))


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_reference(page), encoding="utf-8")


def with_reference(page: str) -> str:
    """The page with what stands between the two marks made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference()}\n{END}{after}"


def reference() -> str:
    """A table for each section of the config, then one for the options of each built-in algorithm."""
    parts = []
    for name, field in RunConfig.model_fields.items():
        if section := _as_section(field):
            parts.append(_table(f"`{name}`", section, f"{name}."))
        elif section := section_by_name(field.annotation):
            parts.append(_table(f"`{name}`", section, f"{name}.NAME."))
    parts += [
        _table(f"`{STRATEGY}_options` with `{STRATEGY}={name}`", strategy, f"{STRATEGY}_options.")
        for name, strategy in STRATEGIES.items()
        if strategy.model_fields
    ]
    parts += [_options_table("estimator", "options", entry) for entry in ESTIMATORS.values() if _has_a_table(entry)]
    parts += [_options_table("loss", "loss_options", entry) for entry in LOSSES.values() if _has_a_table(entry)]
    return "\n".join(parts)


def _has_a_table(entry: EstimatorEntry | LossEntry) -> bool:
    """What has options; a user's own algorithm that happens to be loaded is no part of the reference."""
    return bool(entry.options.model_fields) and entry.function.__module__.startswith("openmanus_rl.")


def _options_table(kind: str, section: str, entry: EstimatorEntry | LossEntry) -> str:
    title = f"`algorithm.{section}` with `algorithm.{kind}={entry.name}`"
    return _table(title, entry.options, f"algorithm.{section}.")


def _table(title: str, section: type[BaseModel], prefix: str) -> str:
    rows = [
        f"| `{key}` | {_kind(field)} | {_default(field)} | {_meaning(field)} |" for key, field in _keys(section, prefix)
    ]
    return "\n".join([f"### {title}\n", f"{section.__doc__}\n", HEAD, *rows, ""])


def _keys(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """Dotted keys in the order of the schema, those of inner sections in their place."""
    for name, field in section.model_fields.items():
        inner, by_name = _as_section(field), section_by_name(field.annotation)
        if inner is not None:
            yield from _keys(inner, f"{prefix}{name}.")
        elif by_name is not None:
            yield from _keys(by_name, f"{prefix}{name}.NAME.")
        else:
            yield f"{prefix}{name}", field


def _as_section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _kind(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(limit, name):g}"
        for limit in field.metadata
        for bound, name, sign in BOUNDS
        if isinstance(limit, bound)
    ]
    kinds = [kind for kind in _alternatives(field.annotation) if kind is not type(None)]
    named = " or ".join(_type_name(kind) for kind in kinds)
    return f"{named} {', '.join(bounds)}".strip()


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(kind))
    return str(kind).replace("typing.", "") if get_args(kind) else str(kind.__name__)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "unset"
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def _meaning(field: FieldInfo) -> str:
    return (field.description or "").replace("\n", " ").replace("<", "\\<").replace("|", "\\|")


if __name__ == "__main__":
    main()
