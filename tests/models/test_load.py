import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_corpus import CORPUS
from transformers import AutoConfig, AutoModelForCausalLM

from openmanus_rl.errors import UserError
from openmanus_rl.models.load import adapter_base, load_causal_lm, load_tokenizer, load_whole_model, save_model
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model


@pytest.fixture
def copied(tiny_directory, tmp_path):
    return shutil.copytree(tiny_directory, tmp_path / "copy")


def test_a_saved_model_loads_again_equal(tiny_directory, tmp_path):
    model, tokenizer = load_causal_lm(tiny_directory), load_tokenizer(tiny_directory)
    with torch.no_grad():
        model.get_input_embeddings().weight.add_(0.5)
    save_model(model, tokenizer, tmp_path / "saved")
    again = load_causal_lm(tmp_path / "saved")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert load_tokenizer(tmp_path / "saved").chat_template == tokenizer.chat_template


def test_saving_over_a_model_replaces_it(tiny_directory, copied):
    model = load_causal_lm(tiny_directory, dtype="bfloat16")
    save_model(model, load_tokenizer(tiny_directory), copied)
    assert load_causal_lm(copied, dtype="auto").dtype == torch.bfloat16
    assert [path.name for path in copied.parent.iterdir()] == ["copy"]


def test_the_dtype_is_the_one_asked_for(tiny_directory):
    assert load_causal_lm(tiny_directory).dtype == torch.float32
    assert load_causal_lm(tiny_directory, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(UserError, match=r"there is no model directory .*nowhere"):
        load_causal_lm(tmp_path / "nowhere")
    with pytest.raises(UserError, match="there is no model directory"):
        load_tokenizer("./nowhere")


def test_a_directory_without_config_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json"):
        load_causal_lm(tmp_path)


def test_a_directory_without_weights_is_named(copied):
    (copied / "model.safetensors").unlink()
    with pytest.raises(UserError, match="has no weights"):
        load_causal_lm(copied)


def test_weights_that_lack_a_part_are_refused_instead_of_drawn_at_random(copied):
    config = json.loads((copied / "config.json").read_text())
    config["num_hidden_layers"] = 3
    (copied / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"have no model\.layers\.2"):
        load_causal_lm(copied)


def test_a_hub_that_is_out_of_reach_says_to_pass_a_directory():
    script = (
        "from openmanus_rl.models.load import load_causal_lm\n"
        "from openmanus_rl.errors import UserError\n"
        "try: load_causal_lm('nobody/no-such-model')\n"
        "except UserError as error: print(error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    shown = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True).stdout
    assert "nobody/no-such-model is no local directory" in shown
    assert "pass a local directory" in shown


def test_a_tokenizer_without_padding_pads_with_its_end_token(copied):
    path = copied / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["pad_token"]
    path.write_text(json.dumps(config))
    tokenizer = load_tokenizer(copied)
    assert tokenizer.pad_token_id == tokenizer.eos_token_id


def test_a_tokenizer_without_an_end_token_is_refused(copied):
    path = copied / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config["eos_token"]
    path.write_text(json.dumps(config))
    with pytest.raises(UserError, match="no end token"):
        load_tokenizer(copied)


def test_a_model_that_scales_its_logits_in_another_way_is_refused(tmp_path, tiny_directory):
    config = AutoConfig.for_model(
        "granite",
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        logits_scaling=4.0,
        initializer_range=0.5,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="GraniteForCausalLM does more to its logits"):
        load_causal_lm(tmp_path)


@pytest.fixture(scope="module")
def adapters(tiny_directory, tmp_path_factory):
    """Adapters on the tiny model with weights that matter, and the logits of the two together."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    torch.manual_seed(0)
    model = get_peft_model(load_causal_lm(tiny_directory), config)
    model.peft_config["default"].base_model_name_or_path = str(tiny_directory)
    directory = tmp_path_factory.mktemp("adapters")
    model.save_pretrained(directory)
    with torch.no_grad():
        return directory, model.eval()(IDS).logits


IDS = torch.arange(1, 30)[None]


def write_base(directory, base):
    path = directory / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_model_name_or_path": base}))


def test_adapters_are_merged_into_the_model_they_belong_to(adapters, tiny_directory, tmp_path):
    directory, expected = adapters
    model = load_whole_model(directory)
    with torch.no_grad():
        assert torch.allclose(model(IDS).logits, expected, atol=1e-4)
        assert not torch.allclose(load_causal_lm(tiny_directory)(IDS).logits, expected, atol=1e-2)
    save_model(model, load_tokenizer(directory), tmp_path / "whole")
    with torch.no_grad():
        assert torch.equal(load_causal_lm(tmp_path / "whole")(IDS).logits, model(IDS).logits)


def test_a_directory_without_adapters_is_loaded_as_it_is(tiny_directory):
    whole, plain = load_whole_model(tiny_directory).state_dict(), load_causal_lm(tiny_directory).state_dict()
    assert all(torch.equal(whole[name], tensor) for name, tensor in plain.items())


def test_adapters_have_the_tokenizer_of_their_model(adapters, tiny_directory):
    assert load_tokenizer(adapters[0]).get_vocab() == load_tokenizer(tiny_directory).get_vocab()


def test_the_path_of_a_model_may_count_from_its_adapters(adapters, copied, tmp_path):
    directory = shutil.copytree(adapters[0], tmp_path / "checkpoint" / "actor")
    write_base(directory, "../../copy")
    with torch.no_grad():
        assert torch.allclose(load_whole_model(directory)(IDS).logits, adapters[1], atol=1e-4)


def test_a_run_that_was_moved_takes_the_model_of_its_adapters_along(adapters, copied, tmp_path):
    directory = shutil.copytree(adapters[0], tmp_path / "checkpoints" / "step_1" / "actor")
    write_base(directory, "/nowhere/copy")
    assert adapter_base(directory) == str(copied.resolve())


@pytest.mark.parametrize(("base", "told"), [("/nowhere/base", "belong to /nowhere/base"), (None, "does not say which")])
def test_adapters_whose_model_is_gone_say_where_it_is_written(adapters, tmp_path, base, told):
    directory = shutil.copytree(adapters[0], tmp_path / "actor")
    write_base(directory, base)
    with pytest.raises(UserError, match=f"{told}(.|\n)*base_model_name_or_path"):
        load_whole_model(directory)


def test_adapters_of_another_model_are_refused(adapters, tmp_path):
    build_tiny_model(tmp_path / "other", CORPUS, TinyModelSpec(hidden_size=64), seed=0)
    directory = shutil.copytree(adapters[0], tmp_path / "actor")
    write_base(directory, str(tmp_path / "other"))
    with pytest.raises(UserError, match="do not load"):
        load_whole_model(directory)
