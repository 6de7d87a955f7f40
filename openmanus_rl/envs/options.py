"""A world's options: what its constructor takes, and what the caller of a server may set for a session of its own."""

import inspect
import json
import reprlib
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from openmanus_rl.envs.base import Environment

_PLAIN_TYPES = (int, float, bool, NoneType)


def refused_options(world: type[Environment], options: Mapping[str, Any]) -> str | None:
    """Why the world's constructor does not take these options, or None if it does: their names and their types."""
    try:
        inspect.signature(world).bind(**options)
    except TypeError as error:
        return f"{world.name} does not take the options {sorted(options)}: {error}."
    annotations = _annotations(world)
    for name, value in options.items():
        flaw = _flaw(annotations[name], value) if name in annotations else None
        if flaw:
            return f"{world.name}: {name} is {reprlib.repr(value)}. {flaw}."
    return None


def default_options(world: type[Environment]) -> dict[str, Any]:
    """What an option is that nobody sets."""
    parameters = inspect.signature(world).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def session_options(world: type[Environment]) -> frozenset[str]:
    """What a caller may set: the class's own list, or by default what can be neither a path nor code."""
    if world.session_options is not None:
        return frozenset(world.session_options)
    return frozenset(name for name, annotation in _annotations(world).items() if _is_plain(annotation))


@cache
def _annotations(world: type[Environment]) -> Mapping[str, Any]:
    """The types of the options that have one; a name in an annotation that cannot be found leaves all without."""
    try:
        hints = get_type_hints(world.__init__, include_extras=True)
    except NameError:
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(world).parameters.values()
    return {p.name: hints[p.name] for p in parameters if p.kind in named and p.name in hints}


def _is_plain(annotation: Any) -> bool:
    """Whether its values are numbers, truth values, a fixed choice of words, or nothing."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_plain(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return all(map(_is_plain, get_args(annotation)))
    return origin is Literal or annotation in _PLAIN_TYPES


def _flaw(annotation: Any, value: Any) -> str | None:
    """Why the value is none of that type, also if it was JSON, where a tuple is a list; nothing is converted."""
    try:
        adapter = TypeAdapter(annotation, config=ConfigDict(strict=True, arbitrary_types_allowed=True))
    except PydanticUserError:
        return None  # a type that pydantic does not know is the world's own to check
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        try:
            adapter.validate_json(json.dumps(value))
        except (ValidationError, TypeError, ValueError, RecursionError):
            return error.errors()[0]["msg"]
    return None
