"""What is written and what is read back come from one place."""

import pytest

from openmanus_rl.agent.templates import TEMPLATES, create_react_prompt

REACT = TEMPLATES.lookup("react")


@pytest.mark.parametrize("action", ["up", "craft 4 oak planks using 1 oak log", "p a n i c"])
def test_an_action_that_is_rendered_is_parsed_back(action):
    parsed = REACT.parse(REACT.render(action))
    assert (parsed.action, parsed.invalid_reason) == (action, None)


def test_only_the_action_line_counts():
    assert REACT.parse("Thought: should I say Action: up?\nAction:  down  ").action == "down"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("Thought: nothing to do", "no line"),
        ("Action: up\nAction: down", "2 Action: lines"),
        ("Thought: x\nAction:   ", "empty"),
        ("", "no line"),
    ],
)
def test_an_answer_without_one_action_says_why(answer, why):
    parsed = REACT.parse(answer)
    assert parsed.action is None
    assert why in parsed.invalid_reason


def test_the_prompt_has_the_task_the_tools_and_the_form_of_an_answer():
    class Tools:
        def describe(self):
            return "hammer, saw"

    prompt = create_react_prompt("Build a table.", Tools())
    assert prompt.startswith("Build a table.")
    assert "hammer, saw" in prompt
    assert prompt.endswith("Thought: and Action:")
    assert "Tools" not in create_react_prompt("Build a table.", None)


def test_an_episode_opens_with_the_task_and_the_first_observation():
    roles = [(message["role"], message["content"]) for message in REACT.opening("Walk.", "a wall")]
    assert roles == [("system", create_react_prompt("Walk.")), ("user", "a wall")]
