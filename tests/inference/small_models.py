"""Small random models for the tests of engines: a Llama with grouped heads, a Qwen3, a GPT-2, a Llama for vLLM."""

import random

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
LONG_CONTEXT = 4096


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
    if kind == "vllm llama":  # whose attention wants heads of 32; the head is tied to the embedding
        wide = {"hidden_size": 128, "tie_word_embeddings": True, "max_position_embeddings": LONG_CONTEXT}
        return sharpened(LlamaForCausalLM(LlamaConfig(**shape | wide)))
    return sharpened(
        GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=CONTEXT))
    )


def random_ids(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


def plain_log_probs(model: PreTrainedModel, ids: list[int], sampled: int, temperature: float = 1.0) -> list[float]:
    """Of the last `sampled` ids, by the model's own forward over the whole list, without any cache."""
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float() / temperature
    log_probs = torch.log_softmax(logits, dim=-1)
    return [log_probs[index - 1, ids[index]].item() for index in range(len(ids) - sampled, len(ids))]


def greedy_by_transformers(model: PreTrainedModel, prompt: list[int], tokens: int) -> list[int]:
    ids = torch.tensor([prompt])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return output[0, len(prompt) :].tolist()


def count_computed_tokens(model: PreTrainedModel) -> list[int]:
    """A list that grows by the number of tokens, padding included, of every forward with a cache."""
    computed: list[int] = []

    def count(module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        if kwargs.get("past_key_values") is not None:
            computed.append(kwargs["input_ids"].numel())

    model.register_forward_pre_hook(count, with_kwargs=True)
    return computed
