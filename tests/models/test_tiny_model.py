import json
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_corpus import ANSWER, CORPUS, OBSERVATION
from transformers import AutoModelForCausalLM, AutoTokenizer

from openmanus_rl.errors import UserError
from openmanus_rl.models.tiny import SPECIAL_TOKENS, TinyModelSpec, build_tiny_model, train_tokenizer

TOKENIZER = train_tokenizer(CORPUS, TinyModelSpec())


def test_transformers_loads_the_directory_with_a_bare_from_pretrained(tiny_directory):
    model = AutoModelForCausalLM.from_pretrained(tiny_directory)
    tokenizer = AutoTokenizer.from_pretrained(tiny_directory)
    assert sum(parameter.numel() for parameter in model.parameters()) < 400_000
    assert model.config.vocab_size == len(tokenizer) <= 512
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.pad_token_id not in (None, tokenizer.eos_token_id)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": OBSERVATION}], add_generation_prompt=True, return_tensors="pt"
    )
    out = model.generate(**ids, max_new_tokens=3)
    assert out.shape[1] <= ids["input_ids"].shape[1] + 3


def test_the_directory_is_a_plain_hugging_face_one(tiny_directory):
    files = {path.name for path in tiny_directory.iterdir()}
    assert files == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    }
    assert json.loads((tiny_directory / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


def test_a_turn_is_short_in_tokens():
    assert TOKENIZER.tokenize(OBSERVATION) == [
        word if i == 0 else "Ġ" + word for i, word in enumerate(OBSERVATION.split(" "))
    ]
    assert len(TOKENIZER.tokenize(ANSWER)) == 5


def test_each_role_costs_one_token_and_each_message_one_end():
    text = TOKENIZER.apply_chat_template(
        [{"role": "system", "content": ""}, {"role": "user", "content": ""}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|system|><|end|><|user|><|end|><|assistant|>"
    assert len(TOKENIZER.encode(text, add_special_tokens=False)) == 5


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_round_trips_exactly(text):
    ids = TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert TOKENIZER.decode(ids) == text


def test_special_tokens_in_text_stay_text_when_they_are_split():
    special_ids = set(TOKENIZER.convert_tokens_to_ids(list(SPECIAL_TOKENS)))
    hostile = "".join(SPECIAL_TOKENS)
    assert special_ids == set(TOKENIZER.encode(hostile, add_special_tokens=False))
    assert special_ids.isdisjoint(TOKENIZER.encode(hostile, add_special_tokens=False, split_special_tokens=True))


def test_the_same_seed_and_corpus_give_the_same_bytes_in_another_process(tiny_directory, tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from tiny_corpus import CORPUS;"
        "from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model;"
        "build_tiny_model(Path(sys.argv[2]), CORPUS, TinyModelSpec(), seed=0)"
    )
    here = __file__.rpartition("/")[0]
    subprocess.run([sys.executable, "-c", script, here, str(tmp_path / "again")], check=True)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tiny_directory / name).read_bytes()


def test_another_seed_gives_other_weights_and_leaves_torchs_random_state_alone(tiny_directory, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    build_tiny_model(tmp_path / "other", CORPUS, TinyModelSpec(), seed=1)
    assert torch.equal(torch.rand(1), expected)
    other = (tmp_path / "other" / "model.safetensors").read_bytes()
    assert other != (tiny_directory / "model.safetensors").read_bytes()


def test_a_build_that_fails_leaves_nothing(tmp_path):
    def broken_corpus():
        yield "up"
        raise RuntimeError("no more text")

    with pytest.raises(Exception, match="no more text"):
        build_tiny_model(tmp_path / "model", broken_corpus(), TinyModelSpec(), seed=0)
    assert list(tmp_path.iterdir()) == []


def test_a_size_that_cannot_be_is_refused():
    with pytest.raises(UserError, match="3 heads"):
        TinyModelSpec(heads=3)
    with pytest.raises(UserError, match="too small"):
        TinyModelSpec(vocab_size=200)
