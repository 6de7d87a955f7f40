"""Before a run starts: the memory of its processes and the seconds of its steps, and whether it fits at all."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import torch

from openmanus_rl.algorithms.registry import find_estimator
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.models.packaged import model_source
from openmanus_rl.trainer.calibration import Calibration, calibrate
from openmanus_rl.trainer.footprint import Process, Usage, model_size, processes
from openmanus_rl.trainer.inputs import prepare_inputs

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED = Path("/sys/fs/cgroup/memory.current")

REMEDIES = {
    "weights": "a smaller model.path",
    "gradients": "a smaller model.path, or adapters (model.lora.rank)",
    "optimizer": "a smaller model.path, adapters (model.lora.rank), or actor.offload_optimiser=true",
    "engine copy": "rollout.ahead=0",
    "KV cache": "a smaller rollout.concurrency, model.max_context or rollout.vllm.kv_cache_gb",
    "activations": "a smaller actor.micro_batch_tokens, or actor.gradient_checkpointing=true",
    "program": "fewer processes (env.num_servers, cluster.pools)",
}
"""What makes each part smaller."""


@dataclass(frozen=True)
class Plan:
    """What a run will take."""

    config: RunConfig
    processes: list[Process]
    available: float
    """Bytes that are free on this machine."""
    calibration: Calibration

    @property
    def total(self) -> float:
        """Bytes of all processes."""
        return _total(self.processes)

    @property
    def parts_of_a_step(self) -> dict[str, float]:
        """Seconds of a step; with `rollout.ahead` it plays and trains at once."""
        seconds = self.calibration.seconds
        credit = sum(seconds.get(part, 0.0) for part in ("old_log_prob", "ref", "values", "adv"))
        update = sum(seconds.get(part, 0.0) for part in ("update_actor", "update_critic"))
        known = {"rollout": seconds["gen"], "credit": credit, "update": update, "sync": seconds["update_weights"]}
        return {**known, "other": seconds["other"]}

    @property
    def step_seconds(self) -> float:
        """Of one training step, without validation."""
        whole, playing = self.calibration.seconds["step"], self.calibration.seconds["gen"]
        return max(playing, whole - playing) if self.config.rollout.ahead else whole

    @property
    def run_seconds(self) -> float:
        """Of all steps, and of the validations between them."""
        trainer = self.config.trainer
        validations = 1 + -(-trainer.steps // trainer.validate_every)
        return trainer.steps * self.step_seconds + validations * self.calibration.validation_seconds

    def check(self) -> None:
        """Refuse what cannot fit, and say what to lower. The memory of another cluster's machines is not known here."""
        if self.config.trainer.executor == "inline" or self.config.cluster.address == "local":
            _check_fit(self.processes, self.available)


def make_plan(config: RunConfig, say: Callable[[str], None]) -> Plan:
    """Try the run out; what cannot fit by its weights alone is refused before anything is loaded."""
    if sys.platform != "linux":
        raise UserError(f"plan measures memory as Linux tells it, and this is {sys.platform}.", "Train without it.")
    torch.set_num_threads(config.trainer.threads)
    requires = find_estimator(config.algorithm.estimator).requires
    source = model_source(config.model.path, config.trainer.cache_dir, say)
    available = available_bytes()
    _check_fit(
        processes(config, model_size(config, None if source == "tiny" else source), requires, Usage()), available
    )
    with TemporaryDirectory() as scratch:
        inputs = prepare_inputs(config, Path(scratch) / "initial_model", say)
        size = model_size(config, inputs.model_dir)
        calibration = calibrate(config, inputs, size, lambda needed: needed < available, say)
    return Plan(config, processes(config, size, requires, calibration.usage), available, calibration)


def available_bytes() -> float:
    """What processes can still take on this machine, or in this container if that is less."""
    free: float = psutil.virtual_memory().available
    if CGROUP_LIMIT.is_file() and (limit := CGROUP_LIMIT.read_text().strip()) != "max":
        free = min(free, int(limit) - int(CGROUP_USED.read_text()))
    return free


def _total(found: list[Process]) -> float:
    return sum(process.count * process.total for process in found)


def _check_fit(found: list[Process], available: float) -> None:
    needed = _total(found)
    if needed <= available:
        return
    process, part = max(
        ((process, part) for process in found for part in process.parts),
        key=lambda pair: pair[0].count * pair[0].parts[pair[1]],
    )
    raise UserError(
        f"this does not fit: it takes {needed / 2**30:.1f} GB, and {available / 2**30:.1f} GB are free. "
        f"The largest part, {process.parts[part] / 2**30:.1f} GB in {process.count} x {process.name}: {part}.",
        f"Try {REMEDIES[part]}.",
    )
