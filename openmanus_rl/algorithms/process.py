"""Process supervision: a turn is worth what was earned from it on, compared with all turns of its task's episodes.

Shao et al. 2024 (DeepSeekMath, process supervision). A turn's return is the discounted sum of the rewards of this
turn and those after it. Its baseline is the mean over every turn of the group, whichever number the turn has: turns
of one number are only those of episodes that had not stopped before, so a mean over them would judge the policy's own
choice to go on.
"""

import torch
from pydantic import Field

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.groups import group_mean_std, require_siblings
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class ProcessOptions(Config):
    """Options of `process`."""

    gamma: float = Field(0.95, ge=0, le=1)
    """Discount from one turn to the next."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation."""
    normalise_std: bool = True
    """Divide by the standard deviation of the group's turns."""


@estimator("process", requires={"group"}, options=ProcessOptions)
def process(batch: CreditBatch, options: ProcessOptions) -> Advantages:
    require_siblings(batch, "process")
    returns_K = batch.turn_returns(options.gamma)
    mean_K, std_K = group_mean_std(returns_K, batch.group_index_E[batch.turn_episodes.line_N])
    scale_K = std_K + options.epsilon if options.normalise_std else torch.ones_like(std_K)
    return batch.spread_turns((returns_K - mean_K) / scale_K)
