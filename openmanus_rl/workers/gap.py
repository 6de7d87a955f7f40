"""How far the engine's log-probs are from the trainer's on the same tokens: as log-probs, and as probabilities."""

import math

import torch

from openmanus_rl.workers.updates import MetricSums

_LOG_PROBS = "rollout/log_prob_gap"
_PROBS = "training/rollout_probs_diff"


def note_gap(metrics: MetricSums, engine: torch.Tensor, trainer: torch.Tensor) -> None:
    """Add the differences of these tokens; there may be none."""
    for name, apart in ((_LOG_PROBS, (engine - trainer).abs()), (_PROBS, (engine.exp() - trainer.exp()).abs())):
        metrics.add(f"{name}_mean", apart.sum(), len(apart))
        metrics.peak(f"{name}_max", apart.max() if len(apart) else 0.0)
    metrics.add(f"{_PROBS}_std", apart.square().sum(), len(apart))


def with_deviation(means: dict[str, float]) -> dict[str, float]:
    """The standard deviation in the place of the mean square that was added up for it."""
    variance = means[f"{_PROBS}_std"] - means[f"{_PROBS}_mean"] ** 2
    return means | {f"{_PROBS}_std": math.sqrt(max(0.0, variance))}
