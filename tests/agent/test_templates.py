"""What is written and what is read back come from one place."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from openmanus_rl.agent.templates import TEMPLATES, ActionTemplate, ParsedAction, create_react_prompt, find_template
from openmanus_rl.agent.templates.phrases import ALFWORLD, SCIWORLD, WEBSHOP
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.registry import environment_class, make_environment
from openmanus_rl.errors import UserError
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.tiny import TinyModelSpec, train_tokenizer

REACT = TEMPLATES.lookup("react")
each_template = pytest.mark.parametrize("name", sorted(TEMPLATES))
ONE_OF_EACH_FORM = sorted(
    {(type(template), template.instructions): name for name, template in TEMPLATES.items()}.values()
)
each_form = pytest.mark.parametrize("name", ONE_OF_EACH_FORM)

FITTING = {
    "search": ["<search>who was she</search>", "<answer>Ada Lovelace</answer>"],
    "agentgym/sqlgym": ["SELECT name FROM people\nWHERE age > 30"],
    "agentgym/textcraft": ["craft 4 oak planks using 1 oak log, 2 stick"],
    "agentgym/babyai": ["go to red ball 1"],
    "agentgym/webshop/function_call": ["search[red shoes]", "click[Buy Now]"],
    "agentgym/webshop/code": ["search[red shoes]", "click[B07'\"X]"],
    "agentgym/alfworld/function_call": [
        "go to desk 1",
        "put mug 1 in/on desk 1",
        "look",
        "heat egg 2 with microwave 1",
    ],
    "agentgym/alfworld/code": ["take mug 1 from desk 1", "inventory"],
    "agentgym/sciworld/function_call": ["connect red wire to battery", "wait1", "look around", "3"],
    "agentgym/sciworld/code": ["pour cup into sink", "focus on unknown substance B"],
}
ANYWHERE = ["up", "craft 4 oak planks using 1 oak log", "p a n i c", 'add_task with Action Input: {"name": "«ü»"}']
"""What templates without a grammar of their own must be able to write."""

PIECES = [
    *("Action:", "Thought:", "\n", " ", "<action>", "</action>", "<response>", "<search>", "</search>", "<answer>"),
    *(
        "</answer>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "```python\n",
        "```sql\n",
        "```",
        "{",
        "}",
        '"name": ',
        ":",
    ),
    *(
        '"arguments"',
        '"act"',
        "[",
        "]",
        "(",
        ")",
        "act(",
        "'",
        '"',
        "\\ud800",
        "\\",
        "\x00",
        "\ud800",
        "up",
        "🎉",
        "1e999",
    ),
]
hostile = st.one_of(st.text(max_size=200), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))


@each_template
@pytest.mark.parametrize("number", range(4))
def test_an_action_that_is_rendered_is_parsed_back(name, number):
    actions = FITTING.get(name, ANYWHERE)
    action = actions[number % len(actions)]
    template = TEMPLATES[name]
    answer = template.render(action)
    parsed = template.parse(answer)
    assert (parsed.action, parsed.invalid_reason) == (action, None)
    start, end = parsed.span
    assert 0 <= start < end <= len(answer)
    assert template.answer_end(answer) in (None, len(answer)), "nothing of what is written is cut off"


@each_form
@settings(max_examples=50)
@given(action=hostile)
def test_what_can_be_rendered_at_all_is_parsed_back(name, action):
    template = TEMPLATES[name]
    try:
        answer = template.render(action)
    except UserError:
        return
    assert template.parse(answer).action == action


@each_form
@settings(max_examples=50)
@given(answer=hostile)
@example("{" * 50_000)
@example('{"name":' * 20_000)
@example("[" * 50_000)
@example("(" * 3_999)
@example("-" * 3_999)
@example("<action>" * 5_000)
@example('{"name": "act", "arguments": {"action": ' + "9" * 5_000 + "}}")
@example("act(0x" + "f" * 3_900 + ")")
@example("get(x=b'a')")
@example("act(**{'action': 'up'})")
@example("__import__('os').system('true')")
@example('{"name": "act", "arguments": {"action": "\\ud800"}}')
def test_hostile_text_is_read_or_refused_with_a_reason_but_never_crashes_a_parser(name, answer):
    template = TEMPLATES[name]
    parsed = template.parse(answer)
    template.answer_end(answer)
    if parsed.action is None:
        assert parsed.invalid_reason
        assert (parsed.kind, parsed.span) == ("invalid", None)
        assert len(template.complaint(parsed.invalid_reason)) < 2_000, "a complaint never repeats a long answer"
    else:
        assert parsed.action.strip()
        assert parsed.invalid_reason is None
        assert answer[slice(*parsed.span)]


def test_only_the_action_line_counts():
    assert REACT.parse("Thought: should I say Action: up?\nAction:  down  ").action == "down"


@pytest.mark.parametrize("name", ["react", "tags", "search", "function_call", "code", "agentgym/maze"])
def test_what_a_model_reasons_in_its_own_block_is_no_action(name):
    template = TEMPLATES[name]
    action = FITTING.get(name, ANYWHERE)[0]
    answer = template.render(action)
    thought = f"<think>perhaps\n{answer.replace('</think>', '')}\n</think>\n"
    assert template.parse(thought).action is None
    assert template.parse(thought + answer).action == action


@pytest.mark.parametrize(
    ("name", "answer", "why"),
    [
        ("react", "Thought: nothing to do", "no line"),
        ("react", "Action: up\nAction: down", "2 Action: lines"),
        ("react", "Thought: x\nAction:   ", "empty"),
        ("react", "", "no line"),
        ("tags", "<action>up", "no <action>"),
        ("tags", "<action>up</action><response>done</response>", "2 <action> and <response> blocks"),
        ("tags", "<action> </action>", "<action> is empty"),
        ("search", "I know: Paris", "neither <search>"),
        ("search", "<search>a</search><answer>b</answer>", "2 <search> and <answer> blocks"),
        ("search", "<answer></answer>", "<answer> is empty"),
        ("function_call", "up", "no JSON object"),
        ("function_call", '{"name": "act"}', "called with the arguments none"),
        ("function_call", '{"name": "act", "arguments": [1]}', "not a JSON object"),
        ("function_call", '{"name": "act", "arguments": {"action": ["up"]}}', "is not a text"),
        ("function_call", '{"name": "a"}{"name": "b"}', "2 function calls"),
        ("function_call", '{"name": "not a name"}', "no function 'not a name'"),
        ("code", "import os", "not the call of a function"),
        ("code", "act('up')\nact('down')", "2 statements"),
        ("code", "os.system('true')", "not the call of a function"),
        ("code", "act(open('secrets'))", "plain values"),
        ("code", "act(f'{secret}')", "plain values"),
        ("code", "act(1 + 1j, 'x')", "2 arguments"),
        ("code", "act(", "not Python"),
        ("code", "", "empty"),
        ("agentgym/textcraft", "Action: get 1 log\nAction: inventory", "2 Action: lines"),
        ("agentgym/textcraft", "inventory", "no Action: lines"),
        ("agentgym/sqlgym", "SELECT 1", "no ```sql block"),
        (
            "agentgym/webshop/function_call",
            '{"function_name": "buy", "arguments": {}}',
            "search(keywords), click(item)",
        ),
        ("agentgym/alfworld/code", "take('mug 1')", "take(obj, recep)"),
    ],
)
def test_an_answer_without_one_action_says_why(name, answer, why):
    parsed = TEMPLATES[name].parse(answer)
    assert parsed.action is None
    assert why in parsed.invalid_reason


@pytest.mark.parametrize(
    "answer",
    [
        '<tool_call>\n{"name": "act", "arguments": {"action": "up"}}\n</tool_call>',
        'I go.\n```json\n{"thought": "x", "function_name": "act", "arguments": {"action": "up"}}\n```',
        '<|python_tag|>{"name": "act", "parameters": {"action": "up"}}',
        '[TOOL_CALLS] [{"name": "act", "arguments": {"action": "up"}}]',
        '{"type": "function", "function": {"name": "act", "arguments": "{\\"action\\": \\"up\\"}"}}',
    ],
    ids=["qwen", "agentgym", "llama", "mistral", "openai"],
)
def test_a_call_is_found_in_the_form_that_a_model_was_trained_on(answer):
    assert TEMPLATES["function_call"].parse(answer).action == "up"
    assert TEMPLATES["tool_call"].parse(answer).action == "up"


def test_a_tool_of_the_world_is_called_by_its_name():
    action = 'get_tasks with Action Input: {"project_id": "12"}'
    assert TEMPLATES["function_call"].parse('{"name": "get_tasks", "arguments": {"project_id": "12"}}').action == action
    assert TEMPLATES["code"].parse('get_tasks(project_id="12")').action == action


def test_agentgyms_clients_strip_what_their_worlds_do_not_know():
    parsed = TEMPLATES["agentgym/textcraft"].parse("Thought:\nhm\n\nAction: get 1 *oak* log!")
    assert parsed.action == "get 1 oak log"
    assert TEMPLATES["agentgym/sciworld"].parse("Action: no\nAction:\nlook around\n").action == "look around"
    assert TEMPLATES["agentgym/sqlgym"].parse("```sql\nSELECT 1\n```or\n```sql\nSELECT 2\n```").action == "SELECT 2"


@pytest.mark.parametrize(("world", "book"), [("alfworld", ALFWORLD), ("webshop", WEBSHOP)])
def test_every_action_of_a_worlds_expert_has_a_call(world, book):
    environment = make_environment(world)
    item = next(iter(environment_class(world).item_ids("train")))
    environment.reset(Task(world, item))
    for _ in range(12):
        action = environment.expert_action()
        name, arguments = book.call(action)
        assert book.action(name, (), arguments) == action
        if environment.step(action).done:
            break
    environment.close()


def test_every_form_of_the_science_world_has_a_call():
    for form in environment_class("sciworld").grammar.forms:
        name, arguments = SCIWORLD.call(form.shown)
        assert (name == "choose") == form.shown.isdigit()
        assert SCIWORLD.action(name, (), arguments) == form.shown


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


@each_template
def test_every_opening_has_the_task_the_form_and_the_observation_in_this_order(name):
    template = TEMPLATES[name]
    said = "\n".join(message["content"] for message in template.opening("Walk home.", "a wall"))
    assert 0 <= said.index("Walk home.") < said.index(template.instructions) < said.rindex("a wall")
    learnt = [m for m in template.opening("", "") if m["role"] == "assistant" and m.get("loss", True)]
    assert not learnt, "what is said for the agent is not learnt from"


class Shout(ActionTemplate):
    """A user's own: the answer is the action, in capitals."""

    instructions = "Shout."

    def write(self, action: str, thought: str) -> str:
        return action.upper()

    def parse(self, answer: str) -> ParsedAction:
        return ParsedAction(answer.lower(), span=(0, len(answer)))


def test_a_template_of_ones_own_is_found_by_module_and_name_as_class_or_object(tmp_path, monkeypatch):
    (tmp_path / "shouting.py").write_text("from test_templates import Shout\nshout = Shout()\nsilent = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_template("shouting:Shout").parse("UP").action == "up"
    assert find_template("shouting:shout").render("up") == "UP"
    with pytest.raises(UserError, match="is a int, not an ActionTemplate"):
        find_template("shouting:silent")
    with pytest.raises(UserError, match="cannot be written with this template"):
        find_template("shouting:shout").render("uP")


TINY = ChatRenderer(train_tokenizer([json.dumps(list(map(TEMPLATES["tags"].render, ANYWHERE)))], TinyModelSpec()))


plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=8)


@given(before=plain, middle=plain.filter(bool), after=plain, ends=st.booleans())
@example(before="x", middle="é", after="🎉", ends=True)
def test_characters_are_mapped_to_the_tokens_that_wrote_them(before, middle, after, ends):
    text = before + middle + after
    ids = TINY.encode_content(text) + ([TINY.end_of_turn_id] if ends else [])
    start, end = TINY.token_span(ids, text, len(before), len(before) + len(middle))

    def whole(count):
        return TINY.decode(ids[:count]).rstrip("\ufffd")

    assert 0 <= start < end <= len(ids) - ends
    assert len(whole(start)) <= len(before), "the first character is not left out"
    assert len(whole(start + 1)) > len(before) or whole(start + 1) == whole(start), "no token before it is in"
    assert len(whole(end)) >= len(before + middle), "the last character is not left out"
    assert len(whole(end - 1)) < len(before + middle), "no token after it is in"


OWN = """
from openmanus_rl.agent.templates import ActionTemplate

class Unfinished(ActionTemplate):
    def write(self, action, thought):
        return action

class Raising(Unfinished):
    instructions = "Say the action."
    def parse(self, answer):
        return answer.split("<")[1]

class Wrong(Raising):
    def parse(self, answer):
        return answer

class Stranger:
    pass
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Unfinished", "has no instructions and no parse"),
        ("Raising", r"Raising.parse raised IndexError: .*\n +In parse, .*own.py:11"),
        ("Wrong", "Wrong.parse gave a str"),
        ("Stranger", "is the class Stranger, not an ActionTemplate"),
        ("Rasing", "has no 'Rasing'. Did you mean Raising?"),
    ],
)
def test_mistakes_in_an_own_template_are_told_as_such(tmp_path, name, told):
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(UserError, match=told):
        find_template(f"{tmp_path / 'own.py'}:{name}").render("up")
