"""ReAct (Yao et al. 2022): a line of thought, then a line with one action."""

import re
from typing import Any

from openmanus_rl.agent.templates.base import (
    TEMPLATES,
    ActionTemplate,
    ParsedAction,
    after_thought,
    invalid,
    stripped_span,
)
from openmanus_rl.data.messages import Message

REACT_INSTRUCTIONS = "Answer with Thought: and Action:"


def create_react_prompt(task_description: str, tool_manager: Any = None) -> str:
    """The opening prompt: the task, the tools if there are any, and the form of an answer.

    `tool_manager` may be None, or anything with `describe() -> str`.
    """
    tools = f" Tools: {tool_manager.describe()}." if tool_manager is not None else ""
    return f"{task_description}{tools} {REACT_INSTRUCTIONS}"


class React(ActionTemplate):
    """`Thought: …` and `Action: …`, each on a line of its own."""

    instructions = REACT_INSTRUCTIONS
    stop = ("\nObservation:",)

    _action_line = re.compile(r"^[ \t]*Action:(.*)$", re.MULTILINE)

    def opening(self, task_description: str, first_observation: str) -> list[Message]:
        return [
            {"role": "system", "content": create_react_prompt(task_description)},
            {"role": "user", "content": first_observation},
        ]

    def write(self, action: str, thought: str) -> str:
        return f"Thought: {thought}\nAction: {action}"

    def parse(self, answer: str) -> ParsedAction:
        lines = list(self._action_line.finditer(answer, after_thought(answer)))
        if not lines:
            return invalid("the answer has no line that starts with Action:")
        if len(lines) > 1:
            return invalid(f"the answer has {len(lines)} Action: lines; one is needed")
        start, end = stripped_span(answer, *lines[0].span(1))
        if start == end:
            return invalid("the Action: line is empty")
        return ParsedAction(answer[start:end], span=(start, end))


TEMPLATES.register("react")(React())
