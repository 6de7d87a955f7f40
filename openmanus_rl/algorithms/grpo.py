"""GRPO: an episode is worth how much better it did than its siblings on the same task.

Shao et al. 2024 (DeepSeekMath). Every sampled token of the episode gets the same advantage.
"""

import torch
from pydantic import Field

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.groups import group_mean_std, require_siblings
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class GrpoOptions(Config):
    """Options of `grpo`."""

    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation."""
    normalise_std: bool = True
    """Divide by the group's standard deviation, so that a task with small differences counts as much as any."""


@estimator("grpo", requires={"group"}, options=GrpoOptions, credit="episode")
def grpo(batch: CreditBatch, options: GrpoOptions) -> Advantages:
    require_siblings(batch, "grpo")
    returns_E = batch.episode_returns()
    mean_E, std_E = group_mean_std(returns_E, batch.group_index_E)
    scale_E = std_E + options.epsilon if options.normalise_std else torch.ones_like(std_E)
    return batch.spread((returns_E - mean_E) / scale_E)
