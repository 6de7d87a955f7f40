"""What the processes of a run hold in memory, by arithmetic: from the config and the shape of its model."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.inference.factory import has_own_weights
from openmanus_rl.inference.kv_cache import cache_shape
from openmanus_rl.trainer.places import needed_roles, pool_of

FLOAT = 4
"""Bytes of a weight, a gradient, a moment of AdamW, a key or a value."""

PARTS = ("program", "weights", "gradients", "optimizer", "engine copy", "KV cache", "activations")
"""What a process holds, as it is shown."""


@dataclass(frozen=True)
class ModelSize:
    """The shape of a model, in numbers of weights and bytes of keys and values."""

    parameters: int
    trained: int
    """Weights that learn: all, or those of the adapters."""
    token_bytes: int
    """Keys and values of one token in all layers."""


@dataclass(frozen=True)
class Process:
    """A kind of process of the run, how many there are, and the bytes of each part in one of them."""

    name: str
    count: int
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True)
class Usage:
    """What only a try can tell of one process, in bytes and tokens."""

    program: float = 0.0
    """Python, torch and all else that is loaded before the run has a model."""
    activations: float = 0.0
    """What an update takes beyond weights, gradients and optimizer."""
    server: float = 0.0
    """One environment server."""
    longest: int = 0
    """Tokens of the longest episode."""


def model_size(config: RunConfig, model_dir: str | None) -> ModelSize:
    """The size of the model in `model_dir`; None is the tiny one, which may not be built yet. No weight is loaded."""
    shape = _tiny_shape(config) if model_dir is None else AutoConfig.from_pretrained(model_dir)
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(shape)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    text = shape.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return ModelSize(
        parameters,
        trained=_adapter_weights(config, model) if config.model.lora.rank else parameters,
        token_bytes=2 * text.num_hidden_layers * heads * head_size * FLOAT,
    )


def processes(config: RunConfig, size: ModelSize, requires: Set[str], usage: Usage) -> list[Process]:
    """All processes of a run at the moment when each holds most."""
    if config.trainer.executor == "ray":
        found = _ray_processes(config, size, requires, usage)
    else:
        here = _learning_parts(config, size, needed_roles(config, requires), usage)
        if config.rollout.engine == "embedded":
            copy = {"engine copy": _embedded_weights(config, size)} if has_own_weights(config) else {}
            here |= copy | {"KV cache": _embedded_keys(config, size, usage, engines=1)}
        found = [Process("trainer", 1, here)]
        if config.rollout.engine == "vllm":
            found.append(Process("vLLM", config.rollout.vllm.tensor_parallel_size, _vllm_parts(config, size)))
    servers = sum(world.num_servers for world in config.worlds if not world.urls)
    if servers:
        found.append(Process("environment server", servers, {"program": usage.server}))
    return found


def _learning_parts(
    config: RunConfig, size: ModelSize, roles: list[str], usage: Usage, ranks: int = 1
) -> dict[str, float]:
    """Of the roles that hold a model, divided over ranks."""
    learning = {"actor": size.trained, "critic": size.parameters}
    trained = sum(learning.get(role, 0) for role in roles)
    held = sum(size.parameters for role in roles if role in ("actor", "critic", "reference"))
    if "actor" in roles and config.model.lora.rank:
        held += size.trained
    # A file that is mapped into memory gives its room up to whoever needs it.
    offloaded = {"actor": config.actor.offload_optimiser, "critic": config.critic.offload_optimiser}
    moments = sum(2 * learning.get(role, 0) for role in roles if not offloaded.get(role))
    return {
        "program": usage.program,
        "weights": held * FLOAT / ranks,
        "gradients": trained * FLOAT / ranks,
        "optimizer": moments * FLOAT / ranks,
        "activations": usage.activations if trained else 0.0,
    }


def _ray_processes(config: RunConfig, size: ModelSize, requires: Set[str], usage: Usage) -> list[Process]:
    """The driver holds no model; every rank of a pool holds its share of the roles that live there."""
    found = [Process("driver", 1, {"program": usage.program})]
    for name, pool in config.cluster.pools.items():
        roles = [role for role in needed_roles(config, requires) if pool_of(config, role) == name]
        parts = _learning_parts(config, size, roles, usage, pool.ranks)
        if "rollout" in roles and config.rollout.engine == "vllm":
            sharing = _vllm_parts(config, size)
            parts |= {"engine copy": sharing["weights"], "KV cache": sharing["KV cache"]}
        elif "rollout" in roles:
            parts["engine copy"] = _embedded_weights(config, size)
            parts["KV cache"] = _embedded_keys(config, size, usage, engines=pool.ranks)
        found.append(Process(f"pool {name}", pool.ranks, parts))
    return found


def _vllm_parts(config: RunConfig, size: ModelSize) -> dict[str, float]:
    """One of vLLM's own processes."""
    vllm = config.rollout.vllm
    weight_bytes = getattr(torch, vllm.dtype).itemsize
    return {
        "weights": size.parameters * weight_bytes / vllm.tensor_parallel_size,
        "KV cache": vllm.kv_cache_gb * 2**30,
    }


def _embedded_weights(config: RunConfig, size: ModelSize) -> float:
    """An embedded engine's own weights; with adapters both as they are and with the adapters merged."""
    return size.parameters * FLOAT * (2 if config.model.lora.rank else 1)


def _embedded_keys(config: RunConfig, size: ModelSize, usage: Usage, engines: int) -> float:
    """Keys and values of the embedded engine: of a step's episodes, or of those of a validation if these are more."""
    episodes = max(
        config.rollout.tasks_per_step * config.rollout.group_size,
        len(config.worlds) * config.data.validation_tasks * config.data.validation_samples,
    )
    at_once = -(-min(config.rollout.concurrency, episodes) // engines)
    longest = config.model.max_context if config.trainer.deterministic else usage.longest
    rows, length = cache_shape(at_once, longest, config.rollout.concurrency, config.model.max_context)
    return rows * length * size.token_bytes


def _tiny_shape(config: RunConfig) -> LlamaConfig:
    tiny = config.model.tiny
    return LlamaConfig(
        vocab_size=tiny.vocab_size,
        hidden_size=tiny.hidden_size,
        intermediate_size=tiny.intermediate_size,
        num_hidden_layers=tiny.layers,
        num_attention_heads=tiny.heads,
        num_key_value_heads=tiny.heads,
        tie_word_embeddings=True,
    )


def _adapter_weights(config: RunConfig, model: PreTrainedModel) -> int:
    """Two matrices of the rank's width for each linear layer that gets an adapter."""
    targets = config.model.lora.target_modules
    head = model.get_output_embeddings()
    return sum(
        config.model.lora.rank * (module.in_features + module.out_features)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head and (not targets or name.rpartition(".")[2] in targets)
    )
