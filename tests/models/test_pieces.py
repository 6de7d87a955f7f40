from hypothesis import given
from hypothesis import strategies as st
from tiny_corpus import CORPUS, OBSERVATION

from openmanus_rl.models.pieces import token_pieces
from openmanus_rl.models.plain_chat import PlainChat
from openmanus_rl.models.tiny import TinyModelSpec, train_tokenizer

TINY = train_tokenizer(CORPUS, TinyModelSpec())
PIECES = token_pieces(TINY)


def ids_of(text):
    return TINY.encode(text, add_special_tokens=False)


@given(st.text())
def test_pieces_are_as_many_as_tokens_and_make_up_the_text(text):
    ids = ids_of(text)
    pieces = PIECES(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == TINY.decode(ids, clean_up_tokenization_spaces=False)


def test_a_character_of_several_tokens_is_shown_once():
    ids = ids_of("👩‍🚀")
    assert len(ids) > 3
    assert [piece for piece in PIECES(ids) if piece] == list("👩‍🚀")


def test_half_a_character_is_not_lost():
    ids = ids_of("é")[:1]
    assert PIECES([*ids_of("a"), *ids, *ids_of("b")]) == ["a", "�", "b"]


def test_a_blank_at_the_start_of_a_token_stays():
    assert "".join(PIECES(ids_of(OBSERVATION))) == OBSERVATION


def test_where_a_models_tokens_are_not_known_the_pieces_are_characters_and_who_speaks():
    chat = PlainChat()
    ids = chat.prompt_ids([{"role": "user", "content": "go 🚀"}])
    assert len(chat.pieces(ids)) == len(ids)
    assert "".join(chat.pieces(ids)) == "user: go 🚀\nassistant: "
