"""Action templates: how a thought and an action are written, and how they are read back, from one place."""

import re
from dataclasses import dataclass
from typing import Any, Protocol

from openmanus_rl.data.messages import Message
from openmanus_rl.registry import Registry


@dataclass(frozen=True)
class ParsedAction:
    """The action in an answer, or why there is none."""

    action: str | None
    invalid_reason: str | None = None


class ActionTemplate(Protocol):
    """One way to write thoughts and actions."""

    def opening(self, task_description: str, first_observation: str) -> list[Message]:
        """How every episode begins, in training, validation and demonstrations alike."""

    def render(self, action: str) -> str:
        """An answer that does `action`: what a demonstrator writes."""

    def parse(self, answer: str) -> ParsedAction:
        """Read an answer. Text of a model is data: it is matched, never evaluated."""


TEMPLATES: Registry[ActionTemplate] = Registry("action template")


REACT_INSTRUCTIONS = "Answer with Thought: and Action:"


def create_react_prompt(task_description: str, tool_manager: Any = None) -> str:
    """The opening prompt: the task, the tools if there are any, and the form of an answer.

    `tool_manager` may be None, or anything with `describe() -> str`.
    """
    tools = f" Tools: {tool_manager.describe()}." if tool_manager is not None else ""
    return f"{task_description}{tools} {REACT_INSTRUCTIONS}"


class React:
    """ReAct (Yao et al. 2022): a line of thought, then a line with one action."""

    _action_line = re.compile(r"^[ \t]*Action:(.*)$", re.MULTILINE)

    def opening(self, task_description: str, first_observation: str) -> list[Message]:
        return [
            {"role": "system", "content": create_react_prompt(task_description)},
            {"role": "user", "content": first_observation},
        ]

    def render(self, action: str) -> str:
        return f"Thought: go\nAction: {action}"

    def parse(self, answer: str) -> ParsedAction:
        actions = [match.strip() for match in self._action_line.findall(answer)]
        if not actions:
            return ParsedAction(None, "the answer has no line that starts with Action:")
        if len(actions) > 1:
            return ParsedAction(None, f"the answer has {len(actions)} Action: lines; one is needed")
        if not actions[0]:
            return ParsedAction(None, "the Action: line is empty")
        return ParsedAction(actions[0])


TEMPLATES.register("react")(React())
