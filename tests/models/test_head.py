"""Log-probs in slices of the tokens are those of all at once, and the vocabulary's matrix never exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import peft
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from openmanus_rl.models import head
from openmanus_rl.models.head import log_probs_and_entropy

ROOT = Path(__file__).parents[2]
VOCABULARY, WIDTH, TOKENS = 300, 16, 23


def language_model(kind="llama", **options):
    """In float64, so that what differs is wrong and not rounded."""
    sizes = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(
        kind, vocab_size=VOCABULARY, num_key_value_heads=2, head_dim=8, initializer_range=1.0, **sizes, **options
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).double().eval()


def adapted_head():
    """peft's layer in place of a linear one."""
    model = language_model()
    peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=["lm_head"], init_lora_weights=False), model)
    return model.double()


HEADS = {
    "plain": language_model,
    "tied": lambda: language_model(tie_word_embeddings=True),
    "capped": lambda: language_model("gemma2", final_logit_softcapping=2.0),
    "adapted": adapted_head,
}


def long_way(model, hidden, labels, temperature):
    logits = model.get_output_embeddings()(hidden)
    cap = getattr(model.config, "final_logit_softcapping", None)
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    distribution = torch.distributions.Categorical(logits=logits / temperature)
    return distribution.log_prob(labels), distribution.entropy()


def results(model, function, temperature):
    """Log-probs, entropies, and the gradient of a mixture of both by the ids' embeddings and all weights."""
    dice = torch.Generator().manual_seed(3)
    ids = torch.randint(VOCABULARY, [TOKENS + 1], generator=dice)
    weights = torch.randn(2, TOKENS, generator=dice, dtype=torch.float64)
    model.zero_grad()
    hidden = model.get_decoder()(input_ids=ids[None, :-1], use_cache=False).last_hidden_state[0]
    log_probs, entropy = function(model, hidden, ids[1:], temperature)
    (weights[0] @ log_probs + weights[1] @ entropy).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return torch.cat([log_probs.detach(), entropy.detach()]), gradient


@pytest.mark.parametrize("tokens_at_once", [1, 5, TOKENS - 1, TOKENS])
@pytest.mark.parametrize("kind", HEADS)
def test_slices_give_the_log_probs_entropies_and_gradients_of_the_whole(kind, tokens_at_once, monkeypatch):
    model = HEADS[kind]()
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", tokens_at_once * VOCABULARY)
    values, gradient = results(model, log_probs_and_entropy, 0.7)
    expected_values, expected_gradient = results(model, long_way, 0.7)
    assert float(expected_gradient.norm()) > 1.0
    torch.testing.assert_close(values, expected_values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-8, atol=1e-8)


class LargestTensor(TorchDispatchMode):
    """Elements of the largest tensor that any operation made."""

    largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return made


def test_no_tensor_has_more_logits_than_are_allowed_at_once_forward_or_backward(monkeypatch):
    model = language_model()
    allowed = 16 * VOCABULARY + 1  # as many as the head itself has weights
    monkeypatch.setattr(head, "LOGITS_AT_ONCE", allowed)
    hidden = torch.randn(200, WIDTH, dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(200, dtype=torch.long)
    with LargestTensor() as seen:
        log_probs, entropy = log_probs_and_entropy(model, hidden, labels)
        (log_probs.sum() + entropy.sum()).backward()
    assert seen.largest <= allowed
    with LargestTensor() as seen:
        long_way(model, hidden, labels, 1.0)
    assert seen.largest == 200 * VOCABULARY, "the measurement sees what it should"


def test_few_logits_go_through_the_head_once(monkeypatch):
    """A small vocabulary pays nothing for what a large one needs."""
    model = language_model()
    calls = []
    model.get_output_embeddings().register_forward_hook(lambda module, inputs, logits: calls.append(len(logits)))
    results(model, log_probs_and_entropy, 1.0)
    assert calls == [TOKENS]


def test_a_temperature_of_zero_is_refused():
    with pytest.raises(ValueError, match="temperature above 0"):
        log_probs_and_entropy(language_model(), torch.zeros(1, WIDTH), torch.zeros(1, dtype=torch.long), 0.0)


@pytest.mark.slow
def test_the_peak_is_a_fifth_of_that_with_all_logits_at_once():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    bench = [sys.executable, str(ROOT / "bench" / "logprob_memory.py")]
    found = subprocess.run(bench, capture_output=True, text=True, check=True, timeout=500, env=environment).stdout
    assert float(re.search(r"ratio ([\d.]+)", found)[1]) <= 0.2, found
