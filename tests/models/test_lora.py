"""Adapters beside frozen weights: in the model, off, in files, and merged."""

import peft
import pytest
import torch

from openmanus_rl.config.schema import LoraConfig
from openmanus_rl.errors import UserError
from openmanus_rl.models.load import load_causal_lm, load_tokenizer
from openmanus_rl.models.lora import (
    adapters_off,
    add_adapters,
    dropout_on,
    named_for_files,
    named_for_module,
    read_adapters,
    save_adapters,
)

IDS = torch.tensor([[5, 9, 300, 41, 7]])


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def adapted(directory, trained=True, seed=0, **lora):
    """With adapters that do something, if `trained`."""
    model = load_causal_lm(directory)
    add_adapters(model, LoraConfig(**{"rank": 4, **lora}), seed)
    if trained:
        dice = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.2 * torch.randn(parameter.shape, generator=dice))
    return model


def test_only_adapters_train_and_at_first_they_change_nothing(tiny_directory):
    base = load_causal_lm(tiny_directory)
    model = adapted(tiny_directory, trained=False)
    assert type(model) is type(base)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all(".lora_A." in name or ".lora_B." in name for name in trained)
    assert torch.equal(logits(model), logits(base))
    assert not torch.equal(logits(adapted(tiny_directory)), logits(base))


def test_every_linear_layer_but_the_head_has_one_unless_layers_are_named(tiny_directory):
    base = load_causal_lm(tiny_directory)
    linear = {name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)} - {"lm_head"}
    assert adapted_names(adapted(tiny_directory)) == linear
    some = adapted_names(adapted(tiny_directory, target_modules=["q_proj"]))
    assert some == {name for name in linear if name.endswith("q_proj")}


def adapted_names(model):
    return {name.partition(".lora_A")[0] for name, _ in model.named_parameters() if ".lora_A" in name}


def test_layers_that_are_not_there_are_refused(tiny_directory):
    with pytest.raises(UserError, match=r"model\.lora\.target_modules"):
        adapted(tiny_directory, target_modules=["no_such_layer"])


def test_the_seed_decides_the_start_and_torchs_own_random_numbers_are_left_alone(tiny_directory):
    state = torch.get_rng_state()
    first, same, other = (adapted(tiny_directory, trained=False, seed=seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, same[name]) for name, tensor in first.items())
    assert any(not torch.equal(tensor, other[name]) for name, tensor in first.items())


def test_off_they_are_as_if_they_were_not_there_and_go_on_after(tiny_directory):
    model = adapted(tiny_directory)
    with_adapters = logits(model)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    with adapters_off(model):
        assert torch.equal(logits(model), logits(load_causal_lm(tiny_directory)))
        assert [name for name, parameter in model.named_parameters() if parameter.requires_grad] == trained
    assert torch.equal(logits(model), with_adapters)
    assert [name for name, parameter in model.named_parameters() if parameter.requires_grad] == trained


def test_dropout_is_on_only_where_it_is_asked_for(tiny_directory):
    model = adapted(tiny_directory, dropout=0.5)
    quiet = logits(model)
    assert torch.equal(logits(model), quiet)
    with dropout_on(model):
        assert not torch.equal(logits(model), logits(model))
        assert not model.training
    assert torch.equal(logits(model), quiet)


def test_saved_adapters_come_back_and_peft_merges_them_into_the_same_model(tiny_directory, tmp_path):
    model = adapted(tiny_directory, alpha=7.0)
    adapters = named_for_files(model.state_dict())
    save_adapters(model, adapters, str(tiny_directory), load_tokenizer(tiny_directory), tmp_path / "adapter")

    read = read_adapters(tmp_path / "adapter")
    assert read.keys() == adapters.keys()
    again = adapted(tiny_directory, trained=False, seed=5, alpha=7.0)
    missing = again.load_state_dict(named_for_module(read), strict=False)
    assert not missing.unexpected_keys
    assert torch.equal(logits(again), logits(model))

    config = peft.PeftConfig.from_pretrained(str(tmp_path / "adapter"))
    assert config.base_model_name_or_path == str(tiny_directory.resolve())
    base = load_causal_lm(config.base_model_name_or_path)
    merged = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter")).merge_and_unload()
    torch.testing.assert_close(logits(merged), logits(model), atol=1e-4, rtol=1e-4)
    assert (tmp_path / "adapter" / "tokenizer.json").is_file()
