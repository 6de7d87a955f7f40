"""LoRA: small trainable matrices beside frozen weights (Hu et al. 2021), through peft.

Adapters are put into the model in place, so it stays the `PreTrainedModel` that engines and workers know. Their tensors
have two names: in the module (`….q_proj.lora_A.default.weight`) and in files, which is what peft saves and vLLM reads
(`base_model.model.….q_proj.lora_A.weight`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from openmanus_rl.config.schema import LoraConfig
from openmanus_rl.errors import UserError
from openmanus_rl.files import written_aside

WEIGHTS_FILE = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_IN_MODULE, _IN_FILE = ".default.weight", ".weight"


def add_adapters(model: PreTrainedModel, lora: LoraConfig, seed: int) -> None:
    """Put adapters into the model and freeze the rest. They change nothing until they are trained."""
    import peft  # takes seconds to import, and most runs have no adapters

    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules or "all-linear",
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            peft.inject_adapter_in_model(config, model)
    except ValueError as error:
        raise UserError(
            f"model.lora.target_modules={lora.target_modules} does not fit {type(model).__name__}: {error}",
            "Leave it empty for every linear layer but the head.",
        ) from error
    model.eval()


@contextmanager
def adapters_off(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model computes as without adapters."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    layers = _adapted_layers(model)
    for layer in layers:
        layer.enable_adapters(False)
    for parameter in trained:  # peft freezes them too, but a sharded model must not see what trains change
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@contextmanager
def dropout_on(model: PreTrainedModel) -> Iterator[None]:
    """Within it the adapters drop some of their inputs; the model itself never drops any."""
    with _dropping(model, True):
        yield


@contextmanager
def dropout_off(model: PreTrainedModel) -> Iterator[None]:
    """Within it, inside `dropout_on`, they drop none."""
    with _dropping(model, False):
        yield


@contextmanager
def _dropping(model: PreTrainedModel, drop: bool) -> Iterator[None]:
    dropouts = [layer.lora_dropout for layer in _adapted_layers(model)]
    for dropout in dropouts:
        dropout.train(drop)
    try:
        yield
    finally:
        for dropout in dropouts:
            dropout.train(not drop)


def is_adapter(name: str) -> bool:
    """Whether a name in a model's state dict is an adapter's."""
    return ".lora_" in name and name.endswith(_IN_MODULE)


def named_for_files(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The adapters' tensors in a model's state dict, under the names that files have."""
    return {
        _PREFIX + name.removesuffix(_IN_MODULE) + _IN_FILE: tensor for name, tensor in state.items() if is_adapter(name)
    }


def named_for_module(adapters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names that files have, named as in the model's state dict."""
    return {name.removeprefix(_PREFIX).removesuffix(_IN_FILE) + _IN_MODULE: tensor for name, tensor in adapters.items()}


def adapted_layers(adapters: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """The two matrices of each adapted layer, the inner one first, by the name of the weight that they are added to."""
    layers = {}
    for name, inner in adapters.items():
        layer, is_inner, _ = name.removeprefix(_PREFIX).partition(".lora_A.")
        if is_inner:
            layers[f"{layer}.weight"] = (inner, adapters[name.replace(".lora_A.", ".lora_B.")])
    return layers


def save_adapters(
    model: PreTrainedModel,
    adapters: Mapping[str, Tensor],
    base: str,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
) -> None:
    """Write a peft directory, all or nothing; `base` is the directory or hub id of the model they belong to."""
    config = model.peft_config["default"]
    config.base_model_name_or_path = str(Path(base).resolve()) if Path(base).is_dir() else base
    with written_aside(Path(directory)) as aside:
        config.save_pretrained(str(aside))
        save_file({name: tensor.contiguous() for name, tensor in adapters.items()}, aside / WEIGHTS_FILE)
        tokenizer.save_pretrained(aside)


def read_adapters(directory: Path) -> dict[str, Tensor]:
    """The tensors of a peft directory, under the names that files have."""
    return load_file(Path(directory) / WEIGHTS_FILE)


def _adapted_layers(model: PreTrainedModel) -> list:
    from peft.tuners.lora import LoraLayer

    return [module for module in model.modules() if isinstance(module, LoraLayer)]
