"""Credit and losses: pure functions on tensors, found by name. Importing the package registers the built-in ones."""

from openmanus_rl.algorithms import (
    drgrpo,
    gae,
    gigpo,
    grpo,
    loss_cispo,
    loss_gspo,
    loss_ppo,
    loss_reinforce,
    process,
    reinforce_pp,
    reinforce_pp_baseline,
    remax,
    rloo,
    turn_gae,
)

__all__ = [
    "drgrpo",
    "gae",
    "gigpo",
    "grpo",
    "loss_cispo",
    "loss_gspo",
    "loss_ppo",
    "loss_reinforce",
    "process",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "remax",
    "rloo",
    "turn_gae",
]
