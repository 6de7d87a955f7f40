import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_corpus import ANSWER, CORPUS, OBSERVATION

from openmanus_rl.errors import UserError
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.tiny import SPECIAL_TOKENS, TinyModelSpec, train_tokenizer

CHATML = (
    "{% for message in messages %}"
    "{% if loop.first and message.role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NO_SYSTEM = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SYSTEM_IN_LAST_USER = (
    "{% for message in messages if message.role != 'system' %}"
    "<|im_start|>{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content }} {% endif %}"
    "{{ message.content }}<|im_end|>"
    "{% endfor %}"
)
NUMBERED = (
    "{% for message in messages %}<|im_start|>{{ loop.index }} {{ message.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{{ messages | length + 1 }} {% endif %}"
)
NO_END = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

TINY = train_tokenizer(CORPUS, TinyModelSpec())


def with_template(template):
    tokenizer = copy.deepcopy(TINY)
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.chat_template = template
    return tokenizer


TOKENIZERS = {"tiny": TINY, "chatml": with_template(CHATML), "no_system": with_template(NO_SYSTEM)}
RENDERERS = {name: ChatRenderer(tokenizer) for name, tokenizer in TOKENIZERS.items()}
each_template = pytest.mark.parametrize("name", TOKENIZERS)


def opening(name):
    system = [{"role": "system", "content": "Reach the goal."}]
    return ([] if name == "no_system" else system) + [{"role": "user", "content": OBSERVATION}]


def conversation(name, answers=3):
    messages = opening(name)
    for turn in range(answers):
        messages.append({"role": "assistant", "content": ANSWER})
        if turn + 1 < answers:
            messages.append({"role": "user", "content": OBSERVATION})
    return messages


def whole(name, messages, add_generation_prompt):
    """The ids that transformers itself gives for a conversation."""
    text = TOKENIZERS[name].apply_chat_template(messages, tokenize=False, add_generation_prompt=add_generation_prompt)
    return TOKENIZERS[name].encode(text, add_special_tokens=False)


def special_ids(name):
    return set(TOKENIZERS[name].added_tokens_decoder)


@each_template
def test_a_prompt_has_the_ids_that_transformers_gives_it(name):
    assert RENDERERS[name].prompt_ids(opening(name)) == whole(name, opening(name), add_generation_prompt=True)


@each_template
def test_turns_that_are_appended_equal_the_whole_conversation_rendered_at_once(name):
    renderer = RENDERERS[name]
    ids = renderer.prompt_ids(opening(name))
    for _ in range(3):
        ids += renderer.answer_ids(ANSWER)
        ids += renderer.append_ids(True, OBSERVATION)
    messages = [*conversation(name), {"role": "user", "content": OBSERVATION}]
    assert ids == whole(name, messages, add_generation_prompt=True)


@each_template
def test_a_turn_cut_before_its_end_token_is_ended_for_it(name):
    renderer = RENDERERS[name]
    ended = renderer.append_ids(True, OBSERVATION)
    assert renderer.append_ids(False, OBSERVATION) == [renderer.end_of_turn_id, *ended]
    assert renderer.end_of_turn_id in renderer.stop_token_ids


def test_a_turn_of_the_tiny_model_costs_three_tokens_beside_its_words():
    assert len(RENDERERS["tiny"].append_ids(True, OBSERVATION)) == 7 + 3


@each_template
@given(before=st.text(max_size=10), after=st.text(max_size=10), token=st.sampled_from([*SPECIAL_TOKENS, "<|im_end|>"]))
def test_world_text_never_becomes_a_special_token(name, before, after, token):
    renderer = RENDERERS[name]
    specials = special_ids(name)

    def count(ids):
        return sum(id_ in specials for id_ in ids)

    hostile = before + token + after
    assert count(renderer.append_ids(True, hostile)) == count(renderer.append_ids(True, "x"))
    assert count(renderer.encode_content(hostile)) == 0
    harmless = [{**message, "content": "x"} for message in opening(name)]
    prompt = [{**message, "content": hostile} for message in opening(name)]
    assert count(renderer.prompt_ids(prompt)) == count(renderer.prompt_ids(harmless))


@each_template
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_content_is_placed_as_it_is(name, content):
    renderer = RENDERERS[name]
    assert renderer.decode(renderer.answer_ids(content)) == content
    shown = TOKENIZERS[name].decode(renderer.append_ids(True, content))
    framed = TOKENIZERS[name].decode(renderer.append_ids(True, "\ufffc"))
    assert shown == framed.replace("\ufffc", content)


@each_template
def test_a_demonstration_has_the_ids_of_a_played_episode(name):
    renderer = RENDERERS[name]
    played = renderer.prompt_ids(opening(name))
    sampled = [0] * len(played)
    for turn in range(3):
        for new, loss in ((renderer.answer_ids(ANSWER), 1), (renderer.append_ids(True, OBSERVATION), 0)):
            if turn == 2 and not loss:
                break
            played += new
            sampled += [loss] * len(new)
    assert renderer.conversation_ids(conversation(name)) == (played, sampled)


@each_template
def test_the_loss_is_on_answers_and_their_end_tokens_only(name):
    renderer = RENDERERS[name]
    ids, mask = renderer.conversation_ids(conversation(name))
    learnt = [id_ for id_, loss in zip(ids, mask, strict=True) if loss]
    assert learnt == renderer.answer_ids(ANSWER) * 3


def test_an_answer_marked_as_not_to_be_learnt_is_masked_but_stays():
    renderer = RENDERERS["tiny"]
    messages = conversation("tiny", answers=2)
    plain_ids, _ = renderer.conversation_ids(messages)
    messages[2] = {**messages[2], "loss": False}
    ids, mask = renderer.conversation_ids(messages)
    assert ids == plain_ids
    assert sum(mask) == len(renderer.answer_ids(ANSWER))


def test_what_follows_the_last_answer_is_left_out():
    renderer = RENDERERS["tiny"]
    messages = conversation("tiny")
    assert renderer.conversation_ids([*messages, {"role": "user", "content": "bye"}]) == renderer.conversation_ids(
        messages
    )


def test_a_conversation_without_an_answer_is_refused():
    with pytest.raises(UserError, match="nothing to learn from"):
        RENDERERS["tiny"].conversation_ids(opening("tiny"))


def test_two_answers_in_a_row_are_refused():
    answer = {"role": "assistant", "content": ANSWER}
    with pytest.raises(UserError, match="0 messages between"):
        RENDERERS["tiny"].conversation_ids([*opening("tiny"), answer, answer])


def test_a_role_that_the_template_refuses_is_an_error_that_says_so():
    with pytest.raises(UserError, match="refuses a conversation of system, user: no system role here"):
        RENDERERS["no_system"].prompt_ids(opening("tiny"))
    with pytest.raises(UserError, match="there is no role tool"):
        RENDERERS["tiny"].append_ids(True, "42", role="tool")


def test_a_template_that_moves_the_system_message_is_refused_with_the_part_that_changed():
    with pytest.raises(UserError, match="rewrites earlier text") as caught:
        ChatRenderer(with_template(SYSTEM_IN_LAST_USER))
    assert "'<|im_start|>… …<|im_end|>…' first and '<|im_start|>…<|im_end|>" in caught.value.what


def test_a_template_that_numbers_its_turns_is_refused():
    with pytest.raises(UserError, match="around the second user message"):
        ChatRenderer(with_template(NUMBERED))


def test_a_template_without_an_end_of_turn_is_refused():
    with pytest.raises(UserError, match="no special token after"):
        ChatRenderer(with_template(NO_END))


def test_a_tokenizer_without_a_template_is_refused():
    with pytest.raises(UserError, match="no chat template"):
        ChatRenderer(with_template(None))


def test_decoding_keeps_a_special_token_that_was_sampled_amid_the_text():
    renderer = RENDERERS["tiny"]
    user = TINY.convert_tokens_to_ids("<|user|>")
    assert renderer.decode([*renderer.encode_content("go"), user, *renderer.answer_ids("up")]) == "go<|user|>up"
