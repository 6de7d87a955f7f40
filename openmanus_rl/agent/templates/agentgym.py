"""AgentGym's forms of an answer, one for each family of its environments, as its own clients read them.

`agentgym/FAMILY` reads a thought and an action; alfworld, sciworld and webshop also have `/function_call` and `/code`.
A conversation starts as there: the instructions, an OK that nothing is learnt from, the first observation.
"""

import re

from openmanus_rl.agent.templates.base import (
    TEMPLATES,
    ActionTemplate,
    ParsedAction,
    after_thought,
    invalid,
    stripped_span,
)
from openmanus_rl.agent.templates.code import Code
from openmanus_rl.agent.templates.function_call import FunctionCall
from openmanus_rl.agent.templates.phrases import ALFWORLD, SCIWORLD, WEBSHOP, PhraseBook
from openmanus_rl.data.messages import Message

ACTION = "Action:"
OK = "OK. I'll follow your instructions and try my best to solve the task."


class _Start(ActionTemplate):
    """How AgentGym's conversations begin."""

    def opening(self, task_description: str, first_observation: str) -> list[Message]:
        return [
            {"role": "user", "content": f"{task_description}\n{self.instructions}"},
            {"role": "assistant", "content": OK, "loss": False},
            {"role": "user", "content": first_observation},
        ]


class AfterAction(_Start):
    """sciworld, alfworld, webshop, maze, wordle: all that follows the last `Action:`."""

    instructions = "Your response should use the following format:\nThought:\nyour thoughts.\n\nAction:\nyour action"

    def write(self, action: str, thought: str) -> str:
        return f"Thought:\n{thought}\n\nAction:\n{action}"

    def parse(self, answer: str) -> ParsedAction:
        at = answer.rfind(ACTION, after_thought(answer))
        if at < 0:
            return invalid("the answer has no Action:")
        start, end = stripped_span(answer, at + len(ACTION), len(answer))
        if start == end:
            return invalid("nothing follows Action:")
        return ParsedAction(answer[start:end], span=(start, end))


class ActionLine(_Start):
    """textcraft, babyai: one line, of which only letters, digits, commas and blanks count."""

    instructions = "Your response should use the following format:\nThought:\nyour thoughts.\n\nAction: your action"

    _line = re.compile(r"Action:[ \t]*\n?(.*)")

    def write(self, action: str, thought: str) -> str:
        return f"Thought:\n{thought}\n\nAction: {action}"

    def parse(self, answer: str) -> ParsedAction:
        lines = list(self._line.finditer(answer, after_thought(answer)))
        if len(lines) != 1:
            return invalid(f"the answer has {len(lines) or 'no'} Action: lines; one is needed")
        start, end = stripped_span(answer, *lines[0].span(1))
        action = " ".join(re.sub(r"[^A-Za-z0-9, ]", "", answer[start:end]).split())
        if not action:
            return invalid("the Action: line has no letters or digits")
        return ParsedAction(action, span=(start, end))


class Sql(_Start):
    """sqlgym: the last ```sql block."""

    instructions = "Your response should end with the query in a block:\n```sql\nyour query\n```"

    _block = re.compile(r"```sql\s(.*?)```", re.DOTALL)

    def write(self, action: str, thought: str) -> str:
        return f"{thought}\n```sql\n{action}\n```"

    def parse(self, answer: str) -> ParsedAction:
        found = list(self._block.finditer(answer, after_thought(answer)))
        if not found:
            return invalid("the answer has no ```sql block")
        start, end = stripped_span(answer, *found[-1].span(1))
        if start == end:
            return invalid("the ```sql block is empty")
        return ParsedAction(answer[start:end], span=(start, end))


class Raw(_Start):
    """Tools and searchqa: the whole answer goes to the world, which reads it."""

    instructions = "Your response goes to the environment as it is."

    def write(self, action: str, thought: str) -> str:
        return action

    def parse(self, answer: str) -> ParsedAction:
        start, end = stripped_span(answer, after_thought(answer), len(answer))
        if start == end:
            return invalid("the answer is empty")
        return ParsedAction(answer[start:end], span=(start, end))


class FamilyCall(FunctionCall, _Start):
    """A family's actions as function calls."""

    name_key = "function_name"

    def __init__(self, book: PhraseBook) -> None:
        self.book = book
        self.instructions = (
            f"You have the following functions available: {book.describe()}\nReply with one JSON object: "
            '{"thought": "I think ...", "function_name": "...", "arguments": {...}}'
        )


class FamilyCode(Code, _Start):
    """A family's actions as a Python call."""

    def __init__(self, book: PhraseBook) -> None:
        self.book = book
        self.instructions = (
            f"You have the following functions available: {book.describe()}\nReply with one call in a block:\n"
            "```python\n# your thoughts\nfunction(argument=...)\n```"
        )


for _family in ("sciworld", "alfworld", "webshop", "maze", "wordle"):
    TEMPLATES.register(f"agentgym/{_family}")(AfterAction())
for _family in ("textcraft", "babyai"):
    TEMPLATES.register(f"agentgym/{_family}")(ActionLine())
for _family in ("weather", "movie", "academia", "todo", "sheet", "searchqa"):
    TEMPLATES.register(f"agentgym/{_family}")(Raw())
TEMPLATES.register("agentgym/sqlgym")(Sql())
for _family, _book in (("sciworld", SCIWORLD), ("alfworld", ALFWORLD), ("webshop", WEBSHOP)):
    TEMPLATES.register(f"agentgym/{_family}/function_call")(FamilyCall(_book))
    TEMPLATES.register(f"agentgym/{_family}/code")(FamilyCode(_book))
