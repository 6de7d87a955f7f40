"""How a call is written: `get_tasks with Action Input: {"project_id": "12"}`. Read as data, never evaluated."""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openmanus_rl.envs.base import ActionForm, ActionGrammar
from openmanus_rl.envs.tools.tool import ToolError

GRAMMAR = ActionGrammar(
    (
        ActionForm(
            "check_valid_actions with Action Input: {}",
            r"(?s:(?:.*\bAction:)?\s*(?P<tool>\w+)(?:\(\))?\s+with\s+Action\s+Input:(?P<input>.*))",
        ),
    )
)


@dataclass(frozen=True)
class Call:
    """A tool's name and what it is called with."""

    tool: str
    arguments: Mapping[str, Any]

    def write(self) -> str:
        """The call as an action."""
        return f"{self.tool} with Action Input: {json.dumps(self.arguments)}"


def read_call(action: str) -> Call | None:
    """The call in an action; None if there is none, a `ToolError` if its input is no object."""
    match = GRAMMAR.parse(action)
    if match is None:
        return None
    return Call(match["tool"], _read_input(match["input"].strip()))


def _read_input(text: str) -> Mapping[str, Any]:
    """A JSON object, whatever follows it; or a Python dictionary of plain values on one line."""
    if not text:
        return {}
    try:
        read, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        try:
            read = ast.literal_eval(text.splitlines()[0])
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
            raise ToolError('the input is not an object such as {"parameter": "value"}') from error
    if not isinstance(read, dict):
        raise ToolError('the input is not an object such as {"parameter": "value"}')
    return read
