"""Function calls as JSON, in the forms that models were trained on: found in the answer, decoded, never evaluated.

`{"name": …, "arguments": {…}}` (Qwen, Hermes), with `parameters` (Llama), with `function_name` (AgentGym), inside
`<tool_call>` tags, a code fence, a list or plain text: a call is a JSON object with a name, wherever it stands.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from openmanus_rl.agent.templates.base import TEMPLATES, ActionTemplate, ParsedAction, after_thought, invalid
from openmanus_rl.agent.templates.phrases import ACT, NotAllowed, PhraseBook
from openmanus_rl.errors import UserError

MOST_BRACES = 64
"""Opening braces that are tried as the start of a call; an answer with more of them is no call."""

NAMES = ("name", "function_name")
ARGUMENTS = ("arguments", "parameters", "args")


class FunctionCall(ActionTemplate):
    """One call an answer: `act` with the action's words, or a tool of the world by its name."""

    instructions = (
        'Answer with one function call as JSON: {"thought": "why", "name": "act", '
        '"arguments": {"action": "one action"}}; a tool of the task is called by its own name.'
    )
    book: PhraseBook = ACT
    name_key = "name"

    def write(self, action: str, thought: str) -> str:
        return json.dumps({"thought": thought, **self._call(action)}, ensure_ascii=False)

    def parse(self, answer: str) -> ParsedAction:
        calls = list(calls_in(answer, after_thought(answer)))
        if not calls:
            return invalid("the answer has no JSON object with a function's name and its arguments")
        if len(calls) > 1:
            return invalid(f"the answer has {len(calls)} function calls; one is needed")
        (start, end, call) = calls[0]
        name = next(call[key] for key in NAMES if key in call)
        arguments: Any = next((call[key] for key in ARGUMENTS if key in call), {})
        if isinstance(arguments, str):
            arguments = _decoded(arguments.strip(), 0)[0] if arguments.strip() else {}
        if not isinstance(arguments, dict):
            return invalid(f"the arguments of {name[:40]!r} are not a JSON object")
        try:
            action = self.book.action(name, (), arguments)
        except NotAllowed as why:
            return invalid(str(why))
        return ParsedAction(action, span=(start, end))

    def _call(self, action: str) -> dict[str, Any]:
        try:
            name, arguments = self.book.call(action)
        except NotAllowed as why:
            raise UserError(str(why), "Choose another agent.template for this world.") from why
        return {self.name_key: name, "arguments": arguments}


class ToolCall(FunctionCall):
    """The same call as chat templates of tool-using models write it, and observations as a tool's messages."""

    instructions = (
        'Think first. Then call one function: <tool_call>{"name": "act", "arguments": {"action": "one action"}}'
        "</tool_call>; a tool of the task is called by its own name."
    )
    stop = ("</tool_call>",)
    observation_role = "tool"

    def write(self, action: str, thought: str) -> str:
        return f"<tool_call>\n{json.dumps(self._call(action), ensure_ascii=False)}\n</tool_call>"


def calls_in(text: str, start: int = 0) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """JSON objects with a name, and where they stand. What stands inside a call is not another one."""
    for _ in range(MOST_BRACES):
        start = text.find("{", start)
        if start < 0:
            return
        read, end = _decoded(text, start)
        if not isinstance(read, dict):
            start += 1
            continue
        if isinstance(read.get("function"), dict):
            read = read["function"]
        if any(isinstance(read.get(key), str) for key in NAMES):
            yield start, end, {key: value for key, value in read.items() if key not in NAMES or isinstance(value, str)}
            start = end
        else:
            start += 1


def _decoded(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that starts there, and where it ends; None if there is none."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start


TEMPLATES.register("function_call")(FunctionCall())
TEMPLATES.register("tool_call")(ToolCall())
