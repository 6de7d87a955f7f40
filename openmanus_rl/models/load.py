"""Causal language models and tokenizers from a local directory or a hub id, with errors that say what is missing."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from openmanus_rl.errors import UserError
from openmanus_rl.files import written_aside
from openmanus_rl.models.head import check_head
from openmanus_rl.models.packaged import CACHE_DIR, model_source

# Its bars for files that load in milliseconds would stand between the lines of a run.
transformers.utils.logging.disable_progress_bar()

ADAPTER_CONFIG = "adapter_config.json"
"""What peft writes beside adapters; it names the model that they belong to."""

_NAME_THE_BASE = f"Write its directory into base_model_name_or_path of {ADAPTER_CONFIG}."

_WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "*.gguf")


def load_causal_lm(
    path_or_hub_id: str | Path, dtype: str | torch.dtype = "float32", attn: str = "sdpa"
) -> PreTrainedModel:
    """A causal language model. Weights that are missing are an error: they would be random numbers otherwise."""
    _check_directory(path_or_hub_id, needs_weights=True)
    model, info = _from_hub(
        AutoModelForCausalLM, path_or_hub_id, dtype=dtype, attn_implementation=attn, output_loading_info=True
    )
    if info["missing_keys"]:
        raise UserError(
            f"the weights at {path_or_hub_id} have no {', '.join(sorted(info['missing_keys'])[:3])}",
            "They are not those of a causal language model of this config.",
        )
    check_head(model)
    return model


def load_whole_model(
    path_or_hub_id: str | Path, dtype: str | torch.dtype = "float32", attn: str = "sdpa"
) -> PreTrainedModel:
    """A causal language model to play with; adapters in a directory are merged into the model that they belong to."""
    if not has_adapters(path_or_hub_id):
        return load_causal_lm(path_or_hub_id, dtype, attn)
    from peft import PeftModel  # takes a second to import, and only adapters need it

    base = load_causal_lm(adapter_base(path_or_hub_id), dtype, attn)
    try:
        merged: PreTrainedModel = PeftModel.from_pretrained(base, str(path_or_hub_id)).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"the adapters at {path_or_hub_id} do not load: {_first_line(error)}") from error
    return merged


def has_adapters(path: str | Path) -> bool:
    """Whether `path` is a directory with adapters in place of a whole model."""
    return (Path(path) / ADAPTER_CONFIG).is_file()


def adapter_base(directory: str | Path) -> str:
    """The model that the adapters in `directory` belong to: as written beside them, also where a whole run was moved.

    A relative path counts from `directory` or from here.
    """
    here = Path(directory).resolve()
    written = json.loads((here / ADAPTER_CONFIG).read_text()).get("base_model_name_or_path")
    if not written:
        raise UserError(f"{here / ADAPTER_CONFIG} does not say which model the adapters belong to.", _NAME_THE_BASE)
    base = model_source(written, CACHE_DIR)
    in_the_run = [parent / Path(base).name for parent in here.parents[:3]]  # run/checkpoints/step/actor
    for found in (here / base, Path(base), *in_the_run):
        if (found / "config.json").is_file():
            return str(found)
    if _is_hub_id(base):
        return base
    raise UserError(f"the adapters in {directory} belong to {base}, which is not there.", _NAME_THE_BASE)


def load_tokenizer(path_or_hub_id: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer; one without a padding token pads with its end token, since padding is masked anyway.

    Adapters have that of the model they belong to.
    """
    if has_adapters(path_or_hub_id):
        return load_tokenizer(adapter_base(path_or_hub_id))
    _check_directory(path_or_hub_id, needs_weights=False)
    tokenizer = _from_hub(AutoTokenizer, path_or_hub_id)
    if tokenizer.eos_token_id is None:
        raise UserError(
            f"the tokenizer at {path_or_hub_id} has no end token", "Set eos_token in its tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def save_model(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    weights: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write a Hugging Face directory that loads again, all or nothing; `weights` if the model itself is sharded."""
    with written_aside(Path(directory)) as aside:
        model.save_pretrained(aside, state_dict=weights)
        tokenizer.save_pretrained(aside)


def _from_hub(auto_class: Any, path_or_hub_id: str | Path, **options: Any) -> Any:
    try:
        return auto_class.from_pretrained(str(path_or_hub_id), **options)
    except (OSError, ValueError) as error:
        first_line = _first_line(error)
        if Path(path_or_hub_id).is_dir():
            raise UserError(f"{path_or_hub_id} does not load: {first_line}") from error
        raise UserError(
            f"{path_or_hub_id} is no local directory, and the Hugging Face hub did not give it: {first_line}",
            "Check the name (`openmanus-rl models list`) and the network, or pass a local directory: config.json, "
            "weights, tokenizer.",
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _check_directory(path_or_hub_id: str | Path, needs_weights: bool) -> None:
    """Notice what a directory lacks before the hub is asked for something that is plainly a path."""
    path = Path(path_or_hub_id)
    if not path.is_dir():
        if _is_hub_id(path_or_hub_id):
            return
        raise UserError(
            f"there is no model directory {path_or_hub_id}",
            "Give an existing directory, or a hub id such as owner/name.",
        )
    if not (path / "config.json").is_file():
        raise UserError(
            f"{path} has no config.json", "A model directory holds config.json, weights and tokenizer.json."
        )
    if needs_weights and not any(next(path.glob(pattern), None) for pattern in _WEIGHT_FILES):
        raise UserError(f"{path} has no weights", "They are expected as model.safetensors, whole or in shards.")


def _is_hub_id(path_or_hub_id: str | Path) -> bool:
    text = str(path_or_hub_id)
    return isinstance(path_or_hub_id, str) and text.count("/") <= 1 and not text.startswith((".", "/", "~"))
