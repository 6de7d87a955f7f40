"""Calls and the actions they stand for: `take(obj="mug 1", recep="desk 1")` is `take mug 1 from desk 1`, both ways."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any


class NotAllowed(Exception):
    """Why a call is no action; the message is for the agent."""


@dataclass(frozen=True)
class Phrase:
    """One allowed call: its name, and the action's words with the call's parameters in braces."""

    name: str
    pattern: str

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.pattern))

    @cached_property
    def _reader(self) -> re.Pattern[str]:
        parts = re.split(r"{(\w+)}", self.pattern)
        named = [f"(?P<{part}>.+?)" if number % 2 else re.escape(part) for number, part in enumerate(parts)]
        return re.compile("".join(named), re.DOTALL)

    def shown(self) -> str:
        """As a person would write its signature."""
        return f"{self.name}({', '.join(self.parameters)})"

    def action(self, arguments: Mapping[str, Any]) -> str:
        """The words of a call with exactly its parameters."""
        if set(arguments) != set(self.parameters):
            given = ", ".join(map(str, arguments)) or "none"
            raise NotAllowed(f"{self.shown()} was called with the arguments {given}")
        for name, value in arguments.items():
            if not isinstance(value, str | int | float) or not str(value).strip():
                raise NotAllowed(f"the argument {name} of {self.shown()} is not a text")
        return re.sub(r"{(\w+)}", lambda match: str(arguments[match[1]]), self.pattern)

    def arguments(self, action: str) -> dict[str, Any] | None:
        """What it was called with, if an action has these words."""
        match = self._reader.fullmatch(action)
        return match.groupdict() if match else None


@dataclass(frozen=True)
class PhraseBook:
    """All calls that are allowed. With `tools`, every other name is a tool of the world, called with a JSON object."""

    phrases: tuple[Phrase, ...]
    tools: bool = False

    def describe(self) -> str:
        return ", ".join(phrase.shown() for phrase in self.phrases)

    def action(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> str:
        """The action that a call stands for; `NotAllowed` if it stands for none."""
        try:
            action = self._action(name, positional, named)
            action.encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise NotAllowed(f"the arguments of {name[:40]!r} cannot be written as text") from error
        return action

    def call(self, action: str) -> tuple[str, dict[str, Any]]:
        """The call that stands for an action: the inverse of `action`, where there is one."""
        tool = re.fullmatch(r"(\w+) with Action Input: ({.*})", action, re.DOTALL) if self.tools else None
        if tool is not None and (named := _object(tool[2])) is not None:
            return tool[1], named
        for phrase in self.phrases:
            arguments = phrase.arguments(action)
            if arguments is not None:
                return phrase.name, arguments
        raise NotAllowed(f"no function does {action!r}; there are {self.describe()}")

    def _action(self, name: str, positional: Sequence[Any], named: Mapping[str, Any]) -> str:
        phrase = next((phrase for phrase in self.phrases if phrase.name == name), None)
        if phrase is not None:
            if len(positional) > len(phrase.parameters):
                raise NotAllowed(f"{phrase.shown()} was called with {len(positional)} arguments")
            given = dict(zip(phrase.parameters, positional, strict=False))
            if twice := given.keys() & named.keys():
                raise NotAllowed(f"{phrase.shown()} was given {', '.join(sorted(twice))} twice")
            return phrase.action({**given, **named})
        if not self.tools or not re.fullmatch(r"\w+", name):
            raise NotAllowed(f"there is no function {name[:40]!r}; there are {self.describe()}")
        if positional:
            raise NotAllowed(f"{name} needs its arguments by name")
        return f"{name} with Action Input: {json.dumps(named)}"


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that is written exactly so."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) and json.dumps(read) == text else None


ACT = PhraseBook((Phrase("act", "{action}"),), tools=True)
"""For any world: `act` with the action's own words, or a tool by its name."""

ALFWORLD = PhraseBook(
    (
        Phrase("goto", "go to {recep}"),
        Phrase("take", "take {obj} from {recep}"),
        Phrase("put", "put {obj} in/on {recep}"),
        Phrase("open", "open {recep}"),
        Phrase("close", "close {recep}"),
        Phrase("toggle", "toggle {obj}"),
        Phrase("heat", "heat {obj} with {recep}"),
        Phrase("cool", "cool {obj} with {recep}"),
        Phrase("clean", "clean {obj} with {recep}"),
        Phrase("examine", "examine {recep}"),
        Phrase("use", "use {obj}"),
        Phrase("inventory", "inventory"),
        Phrase("look", "look"),
    )
)
WEBSHOP = PhraseBook((Phrase("search", "search[{keywords}]"), Phrase("click", "click[{item}]")))
SCIWORLD = PhraseBook(
    (
        *(Phrase(verb, f"{verb} {{OBJ}}") for verb in ("open", "close", "activate", "deactivate", "disconnect")),
        *(Phrase(verb, f"{verb} {{OBJ}}") for verb in ("read", "mix", "eat", "flush", "examine")),
        Phrase("connect", "connect {OBJ1} to {OBJ2}"),
        Phrase("use", "use {OBJ1} on {OBJ2}"),
        Phrase("look_around", "look around"),
        Phrase("look_at", "look at {OBJ}"),
        Phrase("look_in", "look in {OBJ}"),
        Phrase("move", "move {OBJ1} to {OBJ2}"),
        Phrase("pick_up", "pick up {OBJ}"),
        Phrase("put_down", "put down {OBJ}"),
        Phrase("pour", "pour {OBJ1} into {OBJ2}"),
        Phrase("dunk", "dunk {OBJ1} into {OBJ2}"),
        Phrase("go_to", "go to {LOC}"),
        Phrase("focus_on", "focus on {OBJ}"),
        *(Phrase(word, word) for word in ("wait", "wait1", "task", "inventory")),
        Phrase("choose", "{number}"),
    )
)
