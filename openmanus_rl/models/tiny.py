"""The tiny model: a Llama small enough to learn in minutes, with a tokenizer trained on a world's own text.

It is a plain Hugging Face directory: transformers and vLLM load it like any other.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from openmanus_rl.errors import UserError
from openmanus_rl.files import written_aside
from openmanus_rl.models.copying import ROPE_THETA, make_copying

PAD, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL_TOKENS = (PAD, SYSTEM, USER, ASSISTANT, END)

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role not in ('system', 'user', 'assistant') -%}"
    "{{- raise_exception('there is no role ' + message.role) -}}"
    "{%- endif -%}"
    "{{- '<|' + message.role + '|>' + message.content + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
"""One token opens a message and one ends it, so that turns are short."""

WORD = r"\s?[^\s]+|\s"
"""A word keeps the blank or line break before it and the signs in it: ` left:wall` can become one token."""

SMALLEST_VOCABULARY = len(SPECIAL_TOKENS) + 256


@dataclass(frozen=True)
class TinyModelSpec:
    """The size of the model. With the defaults and the maze's words it has 0.37 million parameters."""

    hidden_size: int = 128
    layers: int = 2
    heads: int = 4
    intermediate_size: int = 256
    vocab_size: int = 512
    """Largest vocabulary; a world with few words needs fewer tokens, and gets no more."""
    max_positions: int = 1024
    copying: bool = False
    """Begin with weights that copy what was said before (see `copying`)."""

    def __post_init__(self) -> None:
        if self.copying and (self.layers < 2 or self.hidden_size < 32 * self.heads):
            raise UserError(
                f"{self.layers} layers of {self.heads} heads over a width of {self.hidden_size} cannot copy",
                "With copying=true there are at least 2 layers, and each head has at least 32 of the width.",
            )
        if self.hidden_size % (2 * self.heads):
            raise UserError(
                f"a width of {self.hidden_size} cannot be shared by {self.heads} heads",
                "hidden_size must be a multiple of twice the number of heads.",
            )
        if self.vocab_size < SMALLEST_VOCABULARY:
            raise UserError(
                f"a vocabulary of {self.vocab_size} is too small",
                f"The 256 bytes and the special tokens alone are {SMALLEST_VOCABULARY}.",
            )


def build_tiny_model(directory: Path, corpus: Iterable[str], spec: TinyModelSpec, seed: int) -> None:
    """Train the tokenizer on `corpus`, draw the weights from `seed`, and write both to `directory`, all or nothing."""
    tokenizer = train_tokenizer(corpus, spec)
    model = random_model(spec, tokenizer, seed)
    with written_aside(Path(directory)) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)


def train_tokenizer(corpus: Iterable[str], spec: TinyModelSpec) -> PreTrainedTokenizerFast:
    """A byte-level BPE: it writes any text exactly, and the words of the corpus shortly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        extra_special_tokens=[SYSTEM, USER, ASSISTANT],
        model_max_length=spec.max_positions,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def random_model(spec: TinyModelSpec, tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """The model before it has learnt anything; torch's own random state is left as it was."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        max_position_embeddings=spec.max_positions,
        tie_word_embeddings=True,
        # The usual 0.02 suits widths of thousands; here it leaves attention and logits near zero for an epoch.
        initializer_range=spec.hidden_size**-0.5,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA if spec.copying else 1e4},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        if spec.copying:
            make_copying(model)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    return model
