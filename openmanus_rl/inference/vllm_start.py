"""How vLLM starts: its arguments from a config, and the environment of its processes."""

import logging
import multiprocessing
import multiprocessing.resource_tracker
import multiprocessing.spawn
import os
import re
import shlex
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError

EXTENSION = "openmanus_rl.inference.vllm_extension.WorkerExtension"
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The largest ranks that vLLM makes room for."""


def start_vllm(model_dir: str, config: RunConfig, log: Path) -> Any:
    """An `AsyncLLM` whose processes, which write to `log`, are ready to sample.

    To be called in the thread whose event loop will use it. Ctrl-C reaches every process of a terminal's group, but it
    is for the trainer, which finishes its step with the engine: vLLM's processes are born with that signal blocked, and
    so is the calling thread from here on.
    """
    with environment_variables(variables(config)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("vllm").setLevel(logging.ERROR)
        try:
            from vllm import AsyncEngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            raise UserError(
                f"rollout.engine=vllm needs vLLM, which is not installed here ({error}).",
                "Install it with scripts/setup.sh vllm, or choose rollout.engine=embedded.",
            ) from error
        if current_platform.is_cpu():
            check_for_cpu(model_dir, config)
        arguments = engine_arguments(model_dir, config, on_cpu=current_platform.is_cpu())
        # Its own start would unblock the signal again.
        multiprocessing.resource_tracker.ensure_running()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with children_write_to(log):
                return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        except (ValueError, RuntimeError) as error:
            raise UserError(f"vLLM did not start on {model_dir}: {last_error(log) or error}") from error


def engine_arguments(model_dir: str, config: RunConfig, on_cpu: bool) -> dict[str, Any]:
    """The arguments of `AsyncEngineArgs`."""
    options, lora = config.rollout.vllm, config.model.lora
    arguments: dict[str, Any] = {
        "model": model_dir,
        "dtype": options.dtype,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # sampling is what a request says, not what the model's directory advises
        "max_model_len": config.model.max_context,
        "max_num_seqs": options.max_sequences,
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "block_size": options.block_size,
        "logprobs_mode": "processed_logprobs",
        "tensor_parallel_size": options.tensor_parallel_size,
        "distributed_executor_backend": "uni" if options.tensor_parallel_size == 1 else "mp",
        "worker_extension_cls": EXTENSION,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if on_cpu:
        arguments["kv_cache_memory_bytes"] = int(options.kv_cache_gb * 2**30)
        # A prompt that is computed in pieces would take vLLM down: it turns back a request's random numbers after each
        # piece, and those of a CPU cannot be turned back. So the longest prompt fits into one step, and none is cut.
        arguments["enable_chunked_prefill"] = False
        arguments["max_num_batched_tokens"] = max(4096, config.model.max_context)
    else:
        arguments["gpu_memory_utilization"] = options.gpu_memory_share
    if lora.rank > 0:
        if lora.rank > LORA_RANKS[-1]:
            raise UserError(f"model.lora.rank={lora.rank} is more than vLLM can hold.", f"At most {LORA_RANKS[-1]}.")
        arguments |= {
            "enable_lora": True,
            "max_loras": 1,
            "max_lora_rank": next(r for r in LORA_RANKS if r >= lora.rank),
        }
    return arguments


def variables(config: RunConfig) -> dict[str, str]:
    """Environment variables of vLLM's processes."""
    ranks = config.rollout.vllm.tensor_parallel_size
    return {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would copy this process with its threads
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # its core and a single worker share one process
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # replicas beside each other would bind to the same cores
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // ranks)),
        "TORCHDYNAMO_DISABLE": "1",  # eager in all: compiling needs a compiler, and seconds
    }


@contextmanager
def children_write_to(log: Path) -> Iterator[None]:
    """Processes that are spawned in the block print to a file; where no script can be run, they print as ever."""
    script = log.with_suffix(".sh")
    python = os.fsdecode(multiprocessing.spawn.get_executable())
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@" >>{shlex.quote(str(log))} 2>&1\n')
    script.chmod(0o700)
    if os.access(script, os.X_OK):
        multiprocessing.set_executable(str(script))
    try:
        yield
    finally:
        multiprocessing.set_executable(python)


def last_error(log: Path) -> str:
    """The message of the last exception that is written there."""
    text = log.read_text(errors="replace") if log.exists() else ""
    found: list[str] = re.findall(r"\b\w*(?:Error|Exception): .*", text)
    ours = [message for message in found if "initialization failed" not in message]
    return ours[-1] if ours else ""


@contextmanager
def environment_variables(changes: dict[str, str]) -> Iterator[None]:
    """`os.environ` with changes, and as it was after the block: vLLM changes more of it, for its own processes."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in set(os.environ) - set(before):
            del os.environ[name]
        os.environ.update(before)


def check_for_cpu(model_dir: str, config: RunConfig) -> None:
    """Refuse what vLLM's attention on CPUs cannot do, before its processes start."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    model = AutoConfig.from_pretrained(model_dir).get_text_config()
    head_size = getattr(model, "head_dim", None) or model.hidden_size // model.num_attention_heads
    known = CPUAttentionBackend.get_supported_head_sizes()
    if head_size not in known:
        raise UserError(
            f"vLLM on a CPU cannot run {model_dir}: its attention heads have {head_size} numbers.",
            f"It knows heads of {', '.join(map(str, known))}. Choose rollout.engine=embedded, or another model.",
        )
    if config.rollout.vllm.block_size % 32:
        raise UserError(
            f"rollout.vllm.block_size={config.rollout.vllm.block_size} is not possible on a CPU.",
            "Choose a multiple of 32.",
        )
