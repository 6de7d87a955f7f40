"""The engine that a config asks for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers import PreTrainedModel

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.inference.endpoint import not_for_training
from openmanus_rl.inference.vllm_engine import VllmEngine
from openmanus_rl.models.attention import take_blocks
from openmanus_rl.models.load import has_adapters, load_tokenizer, load_whole_model, save_model


def make_engine(config: RunConfig, model_dir: str, model: PreTrainedModel | None = None) -> InferenceEngine:
    """An engine on the weights of `model_dir`.

    The embedded one has room for every episode that may be under way, and shares the weights of `model` if it is given:
    then there may be no adapters, which would become part of them.
    """
    if config.rollout.engine == "endpoint":
        raise not_for_training()
    if config.rollout.engine == "vllm":
        return VllmEngine(model_dir, config)
    return EmbeddedEngine(
        _own_copy(model_dir) if model is None else model,
        max_sessions=config.rollout.concurrency,
        max_context=config.model.max_context,
        deterministic=config.trainer.deterministic,
        lora=config.model.lora if config.model.lora.rank else None,
    )


def has_own_weights(config: RunConfig) -> bool:
    """Whether an engine in the actor's process cannot sample with the actor's tensors."""
    return config.rollout.engine != "embedded" or config.rollout.ahead > 0 or config.model.lora.rank > 0


def _own_copy(model_dir: str) -> PreTrainedModel:
    model = load_whole_model(model_dir)
    if model.config._attn_implementation == "sdpa":
        take_blocks(model)  # heads that share keys then sample faster
    return model


@contextmanager
def running_engine(config: RunConfig, model_dir: str) -> Iterator[InferenceEngine]:
    """An engine on its own copy of the weights, adapters merged into them, that is closed at the end of the block."""
    with TemporaryDirectory() as scratch:
        if config.rollout.engine == "vllm" and has_adapters(model_dir):
            merged = Path(scratch) / "merged"
            save_model(load_whole_model(model_dir), load_tokenizer(model_dir), merged)
            model_dir = str(merged)
        engine = make_engine(config, model_dir)
        try:
            yield engine
        finally:
            asyncio.run(engine.close())
