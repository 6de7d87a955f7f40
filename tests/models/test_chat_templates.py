"""The chat templates of the model families that users bring: appended tokens equal the whole conversation."""

import copy
from pathlib import Path

import pytest
from tiny_corpus import CORPUS, OBSERVATION

from openmanus_rl.agent.templates import TEMPLATES
from openmanus_rl.errors import UserError
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.tiny import CHAT_TEMPLATE, TinyModelSpec, train_tokenizer

FIXTURES = Path(__file__).parent / "chat_templates"
TINY = train_tokenizer(CORPUS, TinyModelSpec())
MARKS = {
    "llama3": ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "chatml": ["<|im_start|>", "<|im_end|>"],
}
THOUGHT = "<think>\nThe goal is above.\n</think>\n\n"
ANSWER = "Thought: go\nAction: up"


def tokenizer_of(family):
    """The tiny tokenizer with the family's template and special tokens."""
    if family == "tiny":
        return TINY
    tokenizer = copy.deepcopy(TINY)
    marks = MARKS["llama3" if family == "llama3" else "chatml"]
    tokenizer.add_special_tokens({"extra_special_tokens": marks})
    tokenizer.eos_token = marks[-1]
    tokenizer.bos_token = marks[0]
    tokenizer.chat_template = (FIXTURES / f"{family}.jinja").read_text(encoding="utf-8")
    return tokenizer


FAMILIES = ["llama3", "qwen2.5", "qwen3", "smollm2", "tiny"]
TOKENIZERS = {family: tokenizer_of(family) for family in FAMILIES}
OPTION_THAT_WORKS = {"qwen3": {"keep_history": True}}
each_family = pytest.mark.parametrize("family", FAMILIES)


def renderer_of(family, **more):
    return ChatRenderer(TOKENIZERS[family], **{**OPTION_THAT_WORKS.get(family, {}), **more})


def whole(family, messages, **more):
    """What transformers makes of a conversation, on the day that templates are told."""
    options = {"date_string": "26 Jul 2024"} if family == "llama3" else {}
    text = TOKENIZERS[family].apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, **{**options, **more}
    )
    return TOKENIZERS[family].encode(text, add_special_tokens=False)


def messages(turns, role="user", answer=ANSWER, system=True):
    said = [{"role": "system", "content": "Reach the goal."}] if system else []
    said.append({"role": "user", "content": OBSERVATION})
    for _ in range(turns):
        said += [{"role": "assistant", "content": answer}, {"role": role, "content": OBSERVATION}]
    return said


def appended(renderer, turns, answer=ANSWER, system=True):
    ids = renderer.prompt_ids(messages(0, system=system))
    for _ in range(turns):
        ids += renderer.answer_ids(answer) + renderer.append_ids(True, OBSERVATION)
    return ids


@each_family
@pytest.mark.parametrize("system", [True, False])
def test_appended_turns_are_the_whole_conversation_as_transformers_renders_it(family, system):
    assert appended(renderer_of(family), 3, system=system) == whole(family, messages(3, system=system))


@each_family
def test_earlier_tokens_never_change(family):
    renderer = renderer_of(family)
    shorter = appended(renderer, 2, THOUGHT + ANSWER)
    assert appended(renderer, 3, THOUGHT + ANSWER)[: len(shorter)] == shorter


@each_family
@pytest.mark.parametrize("template", ["react", "agentgym/maze"])
def test_a_demonstration_begins_with_the_tokens_that_an_episode_begins_with(family, template):
    opening = TEMPLATES[template].opening("Reach the goal.", OBSERVATION)
    renderer = renderer_of(family)
    prompt = renderer.prompt_ids(opening)
    ids, mask = renderer.conversation_ids([*opening, {"role": "assistant", "content": ANSWER}])
    assert ids == prompt + renderer.answer_ids(ANSWER)
    assert sum(mask[: len(prompt)]) == 0


@pytest.mark.parametrize("family", ["llama3", "qwen2.5", "qwen3"])
def test_observations_of_a_tool_are_the_templates_own_tool_messages(family):
    renderer = renderer_of(family, observation_role="tool", keep_history=False)
    assert appended(renderer, 3) == whole(family, messages(3, role="tool"))


def test_a_template_without_tools_says_so():
    with pytest.raises(UserError, match="there is no role tool"):
        ChatRenderer(TINY, observation_role="tool")


def test_qwen3_drops_earlier_thoughts_and_is_refused_with_an_option_that_works():
    with pytest.raises(UserError, match="drops what the assistant thought") as refused:
        ChatRenderer(TOKENIZERS["qwen3"])
    assert "model.keep_history=true" in refused.value.hint
    kept = renderer_of("qwen3")
    ids = appended(kept, 2, THOUGHT + ANSWER)
    assert TOKENIZERS["qwen3"].decode(ids).count("The goal is above.") == 2
    dropped = whole("qwen3", messages(2, answer=THOUGHT + ANSWER))
    assert "The goal is above." not in TOKENIZERS["qwen3"].decode(dropped), "the test needs a template that drops them"


def test_qwen3_keeps_thoughts_between_the_messages_of_a_tool():
    renderer = renderer_of("qwen3", observation_role="tool", keep_history=False)
    assert appended(renderer, 3, THOUGHT + ANSWER) == whole("qwen3", messages(3, "tool", THOUGHT + ANSWER))


def test_qwen3_without_thinking_starts_every_answer_with_an_empty_thought():
    with pytest.raises(UserError, match="rewrites earlier text"):
        ChatRenderer(TOKENIZERS["qwen3"], options={"enable_thinking": False})
    renderer = renderer_of("qwen3", options={"enable_thinking": False})
    assert renderer.prompt_ids(messages(0)) == whole("qwen3", messages(0), enable_thinking=False)
    text = TOKENIZERS["qwen3"].decode(appended(renderer, 2))
    assert text.count("<|im_start|>assistant\n<think>\n\n</think>\n\n") == 3


def test_llama3_is_told_the_same_date_every_day():
    text = TOKENIZERS["llama3"].decode(renderer_of("llama3").prompt_ids(messages(0)))
    assert "Today Date: 26 Jul 2024" in text
    other = renderer_of("llama3", options={"date_string": "1 Jan 2030"}).prompt_ids(messages(0))
    assert "Today Date: 1 Jan 2030" in TOKENIZERS["llama3"].decode(other)


def test_an_option_that_the_template_does_not_have_is_an_error():
    with pytest.raises(UserError, match=r"model\.chat_options\.enable_thinking has no effect"):
        ChatRenderer(TINY, options={"enable_thinking": False})


def test_a_special_token_that_ends_an_answer_stops_sampling():
    tokenizer = copy.deepcopy(TINY)
    tokenizer.add_tokens(["</tool_call>"])
    renderer = ChatRenderer(tokenizer)
    ends = renderer.ends_with(("</tool_call>", "</action>"))
    assert ends == renderer.stop_token_ids | {tokenizer.convert_tokens_to_ids("</tool_call>")}


def test_the_tiny_models_template_is_the_one_it_is_built_with():
    assert TINY.chat_template == CHAT_TEMPLATE
