"""A model out of a wheel: fetched with pip, checked, unpacked; whole or not at all."""

import dataclasses
import json
import os
import random
import shutil
import socket
import sys
import threading
import time
import venv
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from pocket_model import CHATML, CONTEXT, TOKENS, pocket_weights, pocket_wheel, unpacked, wheel_around
from transformers import AutoModelForCausalLM

from openmanus_rl.errors import UserError
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.load import load_causal_lm, load_tokenizer
from openmanus_rl.models.packaged import PACKAGED, fetch, largest_file, model_source, packaged_directory

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is  12 + 30?"},
]


@pytest.fixture(scope="module")
def links(tmp_path_factory):
    return tmp_path_factory.mktemp("links")


@pytest.fixture(scope="module")
def pocket(links):
    return pocket_wheel(links)


@pytest.fixture(autouse=True)
def _local_index(links, monkeypatch):
    """pip finds packages in `links` and asks nobody else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))


@pytest.fixture(scope="module")
def fetched(pocket, links, tmp_path_factory):
    """The pocket model's directory."""
    directory = tmp_path_factory.mktemp("cache") / "models" / "pocket"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(links))
        fetch(pocket, directory, say=print)
    return directory


def test_every_weight_is_what_the_file_says(fetched):
    state = load_causal_lm(fetched).state_dict()
    original = pocket_weights()
    assert state.keys() == original.keys()
    for name, weight in original.items():
        embedded = "model.embed_tokens.weight" if name == "lm_head.weight" else name
        assert torch.equal(state[name], unpacked(embedded, original[embedded])), name
        assert (state[name] - weight).abs().max() < 0.2  # quantised, but the same model


def test_it_computes_what_transformers_computes_from_the_file_itself(pocket, links, fetched, tmp_path):
    with zipfile.ZipFile(next(links.glob("*.whl"))) as wheel:
        wheel.extract(pocket.file, tmp_path)
    ids = torch.arange(40)[None]
    with torch.no_grad():
        own = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=pocket.file, dtype=torch.float32)(ids).logits
        assert torch.equal(load_causal_lm(fetched)(ids).logits, own)


def test_it_is_a_plain_model_directory(fetched, pocket):
    config = json.loads((fetched / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == CONTEXT
    assert config["tie_word_embeddings"]
    assert "quantization_config" not in config
    generation = json.loads((fetched / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (2, 2)
    assert json.loads((fetched / "origin.json").read_text()) == dataclasses.asdict(pocket)


def test_the_tokenizer_is_the_files(fetched):
    tokenizer = load_tokenizer(fetched)
    assert len(tokenizer) == len(TOKENS)
    assert (tokenizer.eos_token, tokenizer.eos_token_id, tokenizer.pad_token_id) == ("<|im_end|>", 2, 2)
    assert tokenizer.model_max_length == CONTEXT
    text = "In the inn:  12 ünïcode 鏡 \n\t tabs"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.tokenize("<|im_end|> in the") == ["<|im_end|>", "Ġ", "in", "Ġthe"]


def test_digits_stand_alone_and_leave_the_blanks_before_them_together(fetched):
    assert load_tokenizer(fetched).tokenize("in  12") == ["in", "ĠĠ", "1", "2"]


def test_the_chat_template_is_the_files_and_episodes_can_be_played_with_it(fetched):
    tokenizer = load_tokenizer(fetched)
    assert tokenizer.chat_template == CHATML
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is  12 + 30?<|im_end|>\n"
    renderer = ChatRenderer(tokenizer)
    assert tokenizer.decode(renderer.prompt_ids(CONVERSATION)) == expected + "<|im_start|>assistant\n"
    assert renderer.stop_token_ids == {2}


def test_what_is_there_is_not_fetched_again(pocket, fetched, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    said = []
    fetch(pocket, fetched, said.append)
    assert said == []


def test_a_name_of_the_table_is_its_directory_and_anything_else_is_itself(pocket, tmp_path, monkeypatch):
    monkeypatch.setitem(PACKAGED, "pocket", pocket)
    said = []
    directory = model_source("pocket", tmp_path, said.append)
    assert directory == str(packaged_directory("pocket", tmp_path)) == str(tmp_path / "models" / "pocket")
    assert "pocket-model==1.0" in said[0]
    assert directory in said[-1]
    assert load_causal_lm(directory).config.vocab_size == len(TOKENS)
    for other in ("tiny", "./pocket", "owner/name", str(tmp_path)):
        assert model_source(other, tmp_path, said.append) == other


def test_another_file_under_the_same_name_is_refused(pocket, tmp_path):
    with pytest.raises(UserError, match=f"sha256 is {pocket.sha256}, not 0000"):
        fetch(dataclasses.replace(pocket, sha256="0000"), tmp_path / "models" / "pocket", print)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_package_that_pip_does_not_find_is_named_with_what_to_do(pocket, tmp_path):
    missing = dataclasses.replace(pocket, package="pocket-model==2.0")
    with pytest.raises(UserError, match=r"pip could not fetch pocket-model==2\.0: ERROR: No matching") as caught:
        fetch(missing, tmp_path / "models" / "pocket", print)
    assert "PIP_FIND_LINKS" in caught.value.hint
    assert list((tmp_path / "models").iterdir()) == []


def test_a_file_that_cannot_be_unpacked_leaves_nothing(pocket, tmp_path, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    broken = wheel_around(b"GGUF, but no more than that", links)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    with pytest.raises((ValueError, IndexError, OSError)):
        fetch(broken, tmp_path / "models" / "pocket", print)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_disk_without_room_is_noticed_before_anything_is_fetched(pocket, tmp_path):
    large = dataclasses.replace(pocket, disk_mb=10**12)
    with pytest.raises(UserError, match="too little room: fetching pocket takes 1000000000002 MB"):
        fetch(large, tmp_path / "models" / "pocket", print)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_directory_with_something_else_in_it_is_left_alone(pocket, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is there, and is not pocket"):
        fetch(pocket, tmp_path, print)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_python_without_pip_says_how_to_get_it(pocket, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    with pytest.raises(UserError, match="ensurepip"):
        fetch(pocket, tmp_path / "pocket", print)


class SlowIndex(BaseHTTPRequestHandler):
    """A package index that holds the end of a wheel back until the reader has been told of progress."""

    wheel: Path
    said: list[str]

    def do_GET(self):
        is_wheel = self.path.endswith(".whl")
        content = (
            self.wheel.read_bytes() if is_wheel else f'<a href="/{self.wheel.name}">{self.wheel.name}</a>'.encode()
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        half = len(content) // 2 if is_wheel else 0
        self.wfile.write(content[:half])
        deadline = time.monotonic() + 240
        while is_wheel and not any("%" in line for line in self.said) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.wfile.write(content[half:])

    def log_message(self, *_):
        pass


def test_a_slow_download_shows_how_far_it_is(pocket, tmp_path, monkeypatch):
    large = wheel_around(random.Random(0).randbytes(2_000_000), tmp_path)
    said: list[str] = []
    handler = type("Index", (SlowIndex,), {"wheel": next(tmp_path.glob("*.whl")), "said": said})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        with pytest.raises(UserError, match="sha256"):  # what it gets is not looked at further
            fetch(
                dataclasses.replace(large, sha256="other", download_mb=2), tmp_path / "models" / "pocket", said.append
            )
        server.shutdown()
    assert any(line in said for line in ("model: 25 % of 2 MB", "model: 50 % of 2 MB"))


def test_what_pip_removes_meanwhile_is_passed_over(tmp_path):
    """A directory that is gone when it is looked into, as pip's own are between two of its steps."""
    (tmp_path / "wheel").write_bytes(b"12345")
    stop = threading.Event()

    def make_and_remove():
        while not stop.is_set():
            for number in range(20):
                (tmp_path / f"pip-unpack-{number}" / "deeper").mkdir(parents=True)
            for number in range(20):
                shutil.rmtree(tmp_path / f"pip-unpack-{number}")

    thread = threading.Thread(target=make_and_remove)
    thread.start()
    try:
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            assert largest_file(tmp_path) == 5
    finally:
        stop.set()
        thread.join()


def test_an_index_out_of_reach_is_called_that(pocket, tmp_path, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "1")
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{taken.getsockname()[1]}/simple")
        with pytest.raises(UserError, match="the package index is out of reach"):
            fetch(pocket, tmp_path / "models" / "pocket", print)


@pytest.mark.slow
def test_the_real_smollm2_answers(tmp_path, monkeypatch):
    """93 MB from the package index."""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    directory = model_source("smollm2-135m", tmp_path, print)
    model, tokenizer = load_causal_lm(directory), load_tokenizer(directory)
    assert model.num_parameters() == 134_515_008
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    renderer = ChatRenderer(tokenizer)
    prompt = renderer.prompt_ids([{"role": "user", "content": "What is the capital of France?"}])
    assert tokenizer.decode(prompt) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    answer = model.generate(torch.tensor([prompt]), max_new_tokens=64, do_sample=False)[0, len(prompt) :].tolist()
    assert answer[-1] == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert "Paris" in renderer.decode(answer)
