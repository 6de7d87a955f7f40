"""A GGUF file, as llama.cpp writes it, becomes a plain Hugging Face directory with weights in float32."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging


def dequantise(gguf_file: Path, directory: Path) -> None:
    """Write the model, tokenizer, chat template and generation settings of `gguf_file` to `directory`."""
    with _quiet():
        model, tokenizer = _model(gguf_file), _tokenizer(gguf_file)
        tokenizer.model_max_length = model.config.max_position_embeddings
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)


def _model(gguf_file: Path) -> PreTrainedModel:
    """The model with every weight unpacked, and nothing left that says it was quantised."""
    model: Any = AutoModelForCausalLM.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32)
    model.hf_quantizer.remove_quantization_config(model)
    config = model.config
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        do_sample=True,
    )
    return model


def _tokenizer(gguf_file: Path) -> PreTrainedTokenizerFast:
    """The file's tokenizer, in a class that takes its parts as they are: one named after a model would replace some."""
    read = AutoTokenizer.from_pretrained(gguf_file.parent, gguf_file=gguf_file.name)
    backend = read.backend_tokenizer
    if _pre_tokenizer_name(gguf_file) == "smollm":
        # transformers has no entry for it, and takes GPT-2's, which keeps a blank with the number after it.
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=read.bos_token,
        eos_token=read.eos_token,
        unk_token=read.unk_token,
        pad_token=read.pad_token,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = read.chat_template
    return tokenizer


def _pre_tokenizer_name(gguf_file: Path) -> str | None:
    """How llama.cpp names the way in which text is cut before tokens are merged."""
    field = GGUFReader(gguf_file).get_field("tokenizer.ggml.pre")
    return None if field is None else str(field.contents())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no advice of transformers about a file that is unpacked on purpose."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(level)
