"""RLOO: an episode is worth how much better it did than the mean of its siblings, itself left out.

Kool et al. 2019; Ahmadian et al. 2024 ("Back to Basics"). The baseline does not depend on the episode, so the gradient
is unbiased. Every sampled token of the episode gets the same advantage.
"""

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.groups import group_mean_std, require_siblings
from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class RlooOptions(Config):
    """`rloo` has no options."""


@estimator("rloo", requires={"group"}, options=RlooOptions, credit="episode")
def rloo(batch: CreditBatch, options: RlooOptions) -> Advantages:
    require_siblings(batch, "rloo")
    returns_E = batch.episode_returns()
    mean_E, _ = group_mean_std(returns_E, batch.group_index_E)
    _, group_E, size_G = distinct(batch.group_index_E)
    size_E = size_G[group_E]
    # R - (nm - R) / (n - 1), with the group's mean m: exactly 0 where all siblings are equal.
    return batch.spread((returns_E - mean_E) * size_E / (size_E - 1))
