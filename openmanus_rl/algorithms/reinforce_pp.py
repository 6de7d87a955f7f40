"""REINFORCE++: a sampled token is worth what was earned from it on, compared with all tokens of the step.

Hu 2025. The baseline and the scale are the mean and the deviation over the sampled tokens of the whole batch, so
neither a critic nor siblings are needed.
"""

from pydantic import Field

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.gae import whiten
from openmanus_rl.algorithms.ragged import discounted_sums
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class ReinforcePpOptions(Config):
    """Options of `reinforce_pp`."""

    gamma: float = Field(1.0, ge=0, le=1)
    """Discount from one sampled token to the next."""


@estimator("reinforce_pp", options=ReinforcePpOptions)
def reinforce_pp(batch: CreditBatch, options: ReinforcePpOptions) -> Advantages:
    # In float64: whether returns differ at all must not depend on the order of a sum.
    rewards_N = batch.sampled(batch.token_level_rewards_RT).double()
    earned_N = batch.episodes.flat(discounted_sums(batch.episodes.pad(rewards_N), options.gamma))
    return Advantages(batch.rows(whiten(earned_N).to(batch.token_level_rewards_RT.dtype)))
