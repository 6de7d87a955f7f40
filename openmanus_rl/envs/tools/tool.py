"""A tool is a method with typed parameters: its signature is what the agent is told and what a call is checked by."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from openmanus_rl.errors import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

Answer = str | int | float | list[str]
"""What an agent may finish with."""


class ToolError(Exception):
    """Why a call brought nothing: shown to the agent."""


@dataclass(frozen=True)
class Tool:
    """One tool of a service: its name, what it is for, and its parameters with their types."""

    name: str
    purpose: str
    parameters: Mapping[str, Any]

    def describe(self) -> str:
        """As the agent reads it: `get_tasks(project_id: string): the tasks of a project`."""
        listed = ", ".join(f"{name}: {_type_name(kind)}" for name, kind in self.parameters.items())
        return f"{self.name}({listed}): {self.purpose}"


def tool(purpose: str) -> Callable[[F], F]:
    """Decorator: the method is a tool, for this purpose."""

    def mark(method: F) -> F:
        parameters = list(inspect.signature(method).parameters.values())[1:]
        described = Tool(method.__name__, purpose, {one.name: one.annotation for one in parameters})
        method.tool = described  # type: ignore[attr-defined]
        return method

    return mark


def tools_of(service: type) -> Mapping[str, Tool]:
    """The tools of a service by name, in the order they are written; those of the base come first."""
    return {
        name: method.tool
        for base in reversed(service.__mro__)
        for name, method in vars(base).items()
        if isinstance(getattr(method, "tool", None), Tool)
    }


def call_tool(service: object, name: str, arguments: Mapping[str, Any]) -> Any:
    """What the tool answers, or a `ToolError` that says what is wrong with the call."""
    tools = tools_of(type(service))
    if name not in tools:
        raise ToolError(f"there is no tool {name[:50]!r}. {did_you_mean(name[:50], tools)}")
    wanted = tools[name].parameters
    missing = [parameter for parameter in wanted if parameter not in arguments]
    unknown = [given for given in arguments if given not in wanted]
    if missing:
        raise ToolError(f"{name} needs {', '.join(missing)}")
    if unknown:
        raise ToolError(f"{name} takes no {str(unknown[0])[:50]!r}")
    checked = {parameter: _as_type(parameter, arguments[parameter], kind) for parameter, kind in wanted.items()}
    return getattr(service, name)(**checked)


_TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "list"}
_TRUTH = {"true": True, "false": False}


def _as_type(parameter: str, value: Any, kind: Any) -> Any:
    """The value as the parameter's type; numbers and truths may come as strings, and names as numbers."""
    if isinstance(kind, UnionType):
        plain = list if isinstance(value, list) else type(value)
        if plain in (list, str, int, float):
            return value
    elif (get_origin(kind) or kind) is list and isinstance(value, list):
        return value
    elif kind is bool and (isinstance(value, bool) or str(value).lower() in _TRUTH):
        return _TRUTH[str(value).lower()]
    elif kind is str and isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    elif kind in (int, float) and isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            number = float(value)
            if kind is float or number.is_integer():
                return kind(number)
        except (ValueError, OverflowError):
            pass
    raise ToolError(f"{parameter} must be {_type_name(kind)}, not {str(value)[:50]!r}")


def _type_name(kind: Any) -> str:
    if isinstance(kind, UnionType):
        return " or ".join(map(_type_name, get_args(kind)))
    return _TYPE_NAMES[get_origin(kind) or kind]
