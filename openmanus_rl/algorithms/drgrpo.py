"""Dr. GRPO: an episode is worth how much better it did than its siblings on the same task, in units of the reward.

Liu et al. 2025 ("Understanding R1-Zero-Like Training"). As `grpo` without the division by the group's deviation, which
favours tasks that are nearly always or nearly never solved. Its other half is the loss: token losses are summed and
divided by a constant, so that a long episode is not let off lightly.
"""

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.groups import group_mean_std, require_siblings
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class DrGrpoOptions(Config):
    """`drgrpo` has no options."""


@estimator(
    "drgrpo",
    requires={"group"},
    options=DrGrpoOptions,
    credit="episode",
    aggregation="seq-mean-token-sum-norm",
)
def drgrpo(batch: CreditBatch, options: DrGrpoOptions) -> Advantages:
    require_siblings(batch, "drgrpo")
    returns_E = batch.episode_returns()
    mean_E, _ = group_mean_std(returns_E, batch.group_index_E)
    return batch.spread(returns_E - mean_E)
