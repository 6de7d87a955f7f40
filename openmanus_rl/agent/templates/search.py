"""Search (Jin et al. 2025, Search-R1): `<search>words</search>` looks something up, `<answer>words</answer>` ends."""

from openmanus_rl.agent.templates.base import TEMPLATES, ActionTemplate, ParsedAction, after_thought, invalid
from openmanus_rl.agent.templates.blocks import blocks


class Search(ActionTemplate):
    """For worlds whose actions are these two tags, such as searchqa: the action is the tag with its words."""

    instructions = (
        "Think inside <think> and </think>. Then look something up with <search>words</search>; "
        "when you know the answer, write <answer>words</answer>."
    )
    stop = ("</search>", "</answer>")

    def write(self, action: str, thought: str) -> str:
        return f"<think>{thought}</think>\n{action}"

    def parse(self, answer: str) -> ParsedAction:
        found = blocks(answer, ("search", "answer"), after_thought(answer))
        if not found:
            return invalid("the answer has neither <search>…</search> nor <answer>…</answer> after its thought")
        if len(found) > 1:
            return invalid(f"the answer has {len(found)} <search> and <answer> blocks; one is needed")
        (block,) = found
        words = answer[slice(*block.inner)].strip()
        if not words:
            return invalid(f"the <{block.name}> is empty")
        return ParsedAction(answer[slice(*block.outer)], span=block.outer, kind=block.name, content=words)


TEMPLATES.register("search")(Search())
