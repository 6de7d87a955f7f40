"""REINFORCE++ with a baseline: an episode is worth its return minus its siblings' mean, in deviations of the batch.

Hu 2025. The group's mean takes away how hard the task is; the scale is that of all sampled tokens of the step, so a
group whose returns hardly differ is not blown up.
"""

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.gae import whiten
from openmanus_rl.algorithms.groups import group_mean_std, require_siblings
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class ReinforcePpBaselineOptions(Config):
    """`reinforce_pp_baseline` has no options."""


@estimator("reinforce_pp_baseline", requires={"group"}, options=ReinforcePpBaselineOptions, credit="episode")
def reinforce_pp_baseline(batch: CreditBatch, options: ReinforcePpBaselineOptions) -> Advantages:
    require_siblings(batch, "reinforce_pp_baseline")
    returns_E = batch.episode_returns()
    mean_E, _ = group_mean_std(returns_E, batch.group_index_E)
    better_N = (returns_E - mean_E)[batch.episodes.line_N]
    return Advantages(batch.rows(whiten(better_N).to(batch.token_level_rewards_RT.dtype)))
