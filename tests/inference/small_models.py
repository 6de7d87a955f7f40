"""Small random models for the tests of engines: a Llama with grouped heads, a Qwen3, a GPT-2."""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCABULARY = 96
CONTEXT = 256


def sharpened(model: PreTrainedModel) -> PreTrainedModel:
    """Wider weights than at initialisation, so that the next token depends strongly on all tokens before it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model.eval()


def build(kind: str) -> PreTrainedModel:
    torch.manual_seed(0)
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
    }
    if kind == "llama":
        return sharpened(LlamaForCausalLM(LlamaConfig(**shape)))
    if kind == "qwen3":
        return sharpened(Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=16, tie_word_embeddings=True)))
    return sharpened(
        GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=CONTEXT))
    )


def count_computed_tokens(model: PreTrainedModel) -> list[int]:
    """A list that grows by the number of tokens, padding included, of every forward with a cache."""
    computed: list[int] = []

    def count(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        if kwargs.get("past_key_values") is not None:
            computed.append(kwargs["input_ids"].numel())

    model.register_forward_pre_hook(count, with_kwargs=True)
    return computed
