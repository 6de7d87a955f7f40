"""What runs in vLLM's own worker processes: taking weights, and ending with the process that started them."""

import os
import signal
import threading
import time
from typing import Any

import psutil
from safetensors import safe_open


class WorkerExtension:
    """Methods that vLLM adds to its worker class; they are called with `collective_rpc` on every rank."""

    model_runner: Any

    def receive_weights(self, path: str) -> None:
        """Replace all weights by those of a safetensors file with Hugging Face names."""
        with safe_open(path, "pt") as file:
            weights = ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118 - it is no dict
            self.model_runner.reload_weights(weights_iterator=weights)
        repack(self.model_runner.get_model())

    def end_with(self, owner: int) -> None:
        """End vLLM's processes when process `owner`, which started them, is gone without having closed them."""
        owner_process = psutil.Process(owner)
        core = os.getpid() if os.getppid() == owner else os.getppid()

        def watch() -> None:
            while owner_process.is_running() and owner_process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(1)
            if core != os.getpid():
                os.kill(core, signal.SIGKILL)
            os._exit(1)

        threading.Thread(target=watch, name="owner watch", daemon=True).start()


def repack(model: Any) -> None:
    """Make the packed copies of weights anew that vLLM computes with on a CPU.

    `reload_weights` passes over those of a head that is tied to the embedding: without this it would go on sampling
    from the old head.
    """
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    for module in model.modules():
        packed = hasattr(module, "cpu_linear") and not getattr(module, "_cpu_skip_gemm_dispatch", False)
        if packed and module.weight.numel():
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)
