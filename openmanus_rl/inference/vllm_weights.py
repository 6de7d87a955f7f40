"""How weights reach vLLM's processes: as files, in shared memory where it has room."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from openmanus_rl.config.schema import LoraConfig
from openmanus_rl.errors import UserError

SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def weight_file(source: Mapping[str, torch.Tensor], dtype: torch.dtype) -> Iterator[Path]:
    """A safetensors file with `source` that is there for the length of the block."""
    tensors = {name: tensor.to("cpu", dtype).contiguous() for name, tensor in _without_aliases(source).items()}
    size = sum(tensor.nbytes for tensor in tensors.values())
    with tempfile.TemporaryDirectory(prefix="openmanus-rl-weights-", dir=_place_for(size)) as directory:
        path = Path(directory) / "model.safetensors"
        save_file(tensors, path)
        yield path


def check_names(given: Iterable[str], expected: set[str]) -> None:
    """An error if the weights are not those of the model: a partial update would go unnoticed. A head may be tied."""
    names = set(given)
    tied = {"lm_head.weight"}
    missing, unknown = sorted(expected - names - tied), sorted(names - expected - tied)
    if missing or unknown:
        raise UserError(
            f"the new weights are not those of this model: missing {missing[:3]}, unknown {unknown[:3]}",
            "Pass the state dict of a model of the same configuration.",
        )


def checkpoint_names(model_dir: Path) -> set[str]:
    """The names of the weights in a model directory."""
    names: set[str] = set()
    for path in model_dir.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            names.update(file.keys())
    return names


def write_adapters(source: Mapping[str, torch.Tensor], lora: LoraConfig, directory: Path) -> None:
    """A peft adapter directory with the tensors of `source`, as vLLM reads it."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: tensor.cpu().contiguous() for name, tensor in source.items()}, directory / "adapter_model.safetensors"
    )
    modules = sorted({name.split(".lora_")[0].rsplit(".", 1)[-1] for name in source})
    description = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "target_modules": modules,
        "bias": "none",
    }
    (directory / "adapter_config.json").write_text(json.dumps(description))


def _without_aliases(source: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tied weights once, under the first of their names."""
    first: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
    for name, tensor in source.items():
        first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)
    return {name: source[name] for name in first.values()}


def _place_for(size: int) -> str | None:
    """Shared memory if that much fits twice; else wherever temporary files go."""
    if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 2 * size:
        return str(SHARED_MEMORY)
    return None
