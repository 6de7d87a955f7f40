"""What the tests of the vLLM engine share: a model directory, a config, engines and what belongs to them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from small_models import LONG_CONTEXT, build

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.inference.factory import make_engine
from openmanus_rl.inference.vllm_engine import VllmEngine


def saved_llama(directory: Path) -> str:
    build("vllm llama").save_pretrained(directory)
    return str(directory)


def vllm_config(**options: object) -> RunConfig:
    """Float32 and a long context, so that a request can last for seconds."""
    config = RunConfig()
    vllm = config.rollout.vllm.model_copy(update={"kv_cache_gb": 0.25, **options})
    rollout = config.rollout.model_copy(update={"engine": "vllm", "vllm": vllm})
    model = config.model.model_copy(update={"max_context": LONG_CONTEXT})
    return config.model_copy(update={"rollout": rollout, "model": model})


@contextmanager
def running(model_dir: str, config: RunConfig) -> Iterator[VllmEngine]:
    """An engine that is closed at the end, and leaves no process behind."""
    engine = make_engine(config, model_dir)
    assert isinstance(engine, VllmEngine)
    processes = engine_processes()
    assert processes
    try:
        yield engine
    finally:
        asyncio.run(engine.close())
    assert psutil.wait_procs(processes, timeout=30)[1] == []


def run(coroutine):
    """In an event loop of its own, and never for long."""
    return asyncio.run(asyncio.wait_for(coroutine, 120))


def amx_is_announced_and_refused() -> bool:
    """Some virtual machines do: a product in bfloat16 then ends a process that was not told to keep off AMX."""
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    product = "import torch; torch.ones(64, 64, dtype=torch.bfloat16) @ torch.ones(64, 64, dtype=torch.bfloat16)"
    return subprocess.run([sys.executable, "-c", product], env=environment, check=False).returncode == -signal.SIGILL


def engine_processes() -> list[psutil.Process]:
    """vLLM's processes under this one: they have loaded its library."""
    return [child for child in psutil.Process().children(recursive=True) if _is_vllm(child)]


def _is_vllm(process: psutil.Process) -> bool:
    try:
        return any("/vllm/" in loaded.path for loaded in process.memory_maps())
    except psutil.NoSuchProcess:
        return False
