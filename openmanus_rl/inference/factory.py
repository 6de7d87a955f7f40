"""The engine that a config asks for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.inference.vllm_engine import VllmEngine
from openmanus_rl.models.load import load_causal_lm


def make_engine(config: RunConfig, model_dir: str, model: PreTrainedModel | None = None) -> InferenceEngine:
    """An engine on the weights of `model_dir`.

    The embedded one has room for every episode that may be under way, and shares the weights of `model` if it is given.
    """
    if config.rollout.engine == "vllm":
        return VllmEngine(model_dir, config)
    model = load_causal_lm(model_dir) if model is None else model
    return EmbeddedEngine(model, max_sessions=config.rollout.concurrency, max_context=config.model.max_context)


@contextmanager
def running_engine(config: RunConfig, model_dir: str) -> Iterator[InferenceEngine]:
    """An engine on its own copy of the weights that is closed at the end of the block."""
    engine = make_engine(config, model_dir)
    try:
        yield engine
    finally:
        asyncio.run(engine.close())
