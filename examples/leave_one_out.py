"""RLOO: an episode is worth how much better it did than the mean of its siblings, itself left out.

Kool et al. 2019; Ahmadian et al. 2024. Every sampled token of the episode gets the same advantage.

    ./train_grpo.sh algorithm.estimator=examples/leave_one_out.py:leave_one_out
"""

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.groups import require_siblings
from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class LeaveOneOutOptions(Config):
    """Options of `leave_one_out`, set with algorithm.options.NAME=VALUE."""

    scale: float = 1.0
    """Multiplies every advantage: returns of another size than 1 are brought to it."""


@estimator("leave_one_out", requires={"group"}, options=LeaveOneOutOptions, credit="episode")
def leave_one_out(batch: CreditBatch, options: LeaveOneOutOptions) -> Advantages:
    require_siblings(batch, "leave_one_out")
    returns_E = batch.episode_returns()
    _, group_E, episodes_G = distinct(batch.group_index_E)
    total_G = returns_E.new_zeros(len(episodes_G)).index_add(0, group_E, returns_E)
    mean_of_others_E = (total_G[group_E] - returns_E) / (episodes_G[group_E] - 1)
    return batch.spread(options.scale * (returns_E - mean_of_others_E))
