"""Tags: `<think>` for the thought, `<action>` for an action, `<response>` for what is said to whoever gave the task."""

from openmanus_rl.agent.templates.base import (
    TEMPLATES,
    ActionTemplate,
    ParsedAction,
    after_thought,
    invalid,
    stripped_span,
)
from openmanus_rl.agent.templates.blocks import blocks


class Tags(ActionTemplate):
    """One `<action>` or `<response>` an answer; both go to the world, which tells them apart by their words."""

    instructions = (
        "Think inside <think> and </think>. Then act with <action>one action</action>, "
        "or answer with <response>your answer</response>."
    )
    stop = ("</action>", "</response>")

    def write(self, action: str, thought: str) -> str:
        return f"<think>{thought}</think>\n<action>{action}</action>"

    def parse(self, answer: str) -> ParsedAction:
        found = blocks(answer, ("action", "response"), after_thought(answer))
        if not found:
            return invalid("the answer has no <action>…</action> and no <response>…</response> after its thought")
        if len(found) > 1:
            return invalid(f"the answer has {len(found)} <action> and <response> blocks; one is needed")
        start, end = stripped_span(answer, *found[0].inner)
        if start == end:
            return invalid(f"the <{found[0].name}> is empty")
        return ParsedAction(answer[start:end], span=(start, end), kind=found[0].name)


TEMPLATES.register("tags")(Tags())
