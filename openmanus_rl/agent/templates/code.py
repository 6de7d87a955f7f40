"""Code as action (CodeAct, Wang et al. 2024), and none is run: one allowed call with plain values, read as a tree."""

import ast
import re

from openmanus_rl.agent.templates.base import (
    TEMPLATES,
    ActionTemplate,
    ParsedAction,
    after_thought,
    invalid,
    stripped_span,
)
from openmanus_rl.agent.templates.phrases import ACT, NotAllowed, PhraseBook
from openmanus_rl.errors import UserError

LONGEST_CODE = 4_000
"""Characters; the parser's memory grows with what it reads."""


class Code(ActionTemplate):
    """A Python block with one call: `act("the action")`, or a tool of the world. Comments are the thought."""

    instructions = (
        'Answer with one Python call in a code block: ```python\n# why\nact("one action")\n```\n'
        'A tool of the task is called by its own name with named arguments, such as tool(parameter="value").'
    )
    book: PhraseBook = ACT

    _block = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)

    def write(self, action: str, thought: str) -> str:
        try:
            name, arguments = self.book.call(action)
        except NotAllowed as why:
            raise UserError(str(why), "Choose another agent.template for this world.") from why
        written = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        return f"```python\n# {thought}\n{name}({written})\n```"

    def parse(self, answer: str) -> ParsedAction:
        after = after_thought(answer)
        found = [match.span(1) for match in self._block.finditer(answer, after)] or [(after, len(answer))]
        if len(found) > 1:
            return invalid(f"the answer has {len(found)} code blocks; one is needed")
        start, end = stripped_span(answer, *found[0])
        try:
            name, positional, named = read_call(answer[start:end])
            action = self.book.action(name, positional, named)
        except NotAllowed as why:
            return invalid(str(why))
        return ParsedAction(action, span=(start, end))

    def answer_end(self, answer: str) -> int | None:
        match = self._block.search(answer, after_thought(answer))
        return match.end() if match else None


def read_call(source: str) -> tuple[str, list[object], dict[str, object]]:
    """The name and the plain values of the one call that `source` is; `NotAllowed` for anything else."""
    if len(source) > LONGEST_CODE:
        raise NotAllowed(f"the code has {len(source)} characters; {LONGEST_CODE} are allowed")
    try:
        statements = ast.parse(source).body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise NotAllowed("the code is not Python") from error
    match statements:
        case [ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords))]:
            if any(keyword.arg is None for keyword in keywords):
                raise NotAllowed(f"{name} is called with **; arguments are given one by one")
            return name, [_value(node) for node in args], {str(word.arg): _value(word.value) for word in keywords}
        case []:
            raise NotAllowed("the code is empty")
        case [_]:
            raise NotAllowed("the code is not the call of a function by its name")
        case _:
            raise NotAllowed(f"the code has {len(statements)} statements; one call is needed")


def _value(node: ast.expr) -> object:
    """A literal's value: texts, numbers, and lists and dictionaries of them. `literal_eval` runs nothing."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError) as error:
        raise NotAllowed("the arguments of a call are plain values") from error


TEMPLATES.register("code")(Code())
