"""An action template of one's own: the action stands in double brackets, `I see a wall. [[left]]`.

openmanus-rl train agent.template=examples/bracket_template.py:Brackets
"""

import re

from openmanus_rl.agent.templates import ActionTemplate, ParsedAction, invalid


class Brackets(ActionTemplate):
    instructions = "End your answer with the action in double brackets: [[action]]"
    stop = ("]]",)

    pattern = re.compile(r"\[\[([^\[\]]+)\]\]")

    def write(self, action: str, thought: str) -> str:
        return f"{thought} [[{action}]]"

    def parse(self, answer: str) -> ParsedAction:
        found = list(self.pattern.finditer(answer))
        if len(found) != 1:
            return invalid(f"the answer has {len(found)} actions in double brackets; one is needed")
        return ParsedAction(found[0][1], span=found[0].span(1))
