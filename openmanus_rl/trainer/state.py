"""What a checkpoint holds: what the workers save of themselves, and everything else that a resumed run needs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from openmanus_rl.algorithms.kl_control import KLController
from openmanus_rl.data.sampler import Sampler
from openmanus_rl.trainer.guard import Guard
from openmanus_rl.trainer.roles import Roles

STATE_FILE = "trainer_state.pt"


@dataclass
class Progress:
    """How far a run is."""

    step: int = 0
    """Training steps done; also the policy's version."""
    episodes: int = 0
    sampled_tokens: int = 0
    train_seconds: float = 0.0
    total_seconds: float = 0.0
    success_before: dict[str, Any] = field(default_factory=dict)
    success_after: dict[str, Any] = field(default_factory=dict)
    """The last measurement."""
    measured_at: int | None = None
    """The step of the last measurement."""
    tasks: int = 0
    """A fingerprint of the training tasks: the sampler's position means something only for the same ones."""
    events: int = 0
    """Lines of `events.jsonl` that a resumed run keeps."""


def stage_state(
    directory: Path, roles: Roles, sampler: Sampler, kl_control: KLController, guard: Guard, progress: Progress
) -> Callable[[], None]:
    """Take a copy of everything for a checkpoint directory; what is returned waits until all of it is written there."""
    state: dict[str, Any] = {
        "progress": asdict(progress),
        "sampler": sampler.state_dict(),
        "kl_control": kl_control.state_dict(),
        "guard": guard.state_dict(),
        "torch_rng": torch.get_rng_state(),
    }
    roles.save(directory)
    torch.save(state, directory / STATE_FILE)
    return roles.saved


def read_state(directory: Path, roles: Roles, sampler: Sampler, kl_control: KLController, guard: Guard) -> Progress:
    """Put a checkpoint's state back into its owners."""
    state = torch.load(directory / STATE_FILE, weights_only=True)
    roles.load(directory)
    sampler.load_state_dict(state["sampler"])
    kl_control.load_state_dict(state["kl_control"])
    guard.load_state_dict(state["guard"])
    torch.set_rng_state(state["torch_rng"])
    return Progress(**state["progress"])
