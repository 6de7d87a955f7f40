"""ReMax: an episode is worth how much better it did than the policy's greedy episode on the same task.

Li et al. 2023. The greedy episode is played once a task and never trained on; it is the baseline, so one sampled
episode a task is enough. Every sampled token of the episode gets the same advantage.
"""

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class RemaxOptions(Config):
    """`remax` has no options."""


@estimator("remax", requires={"greedy"}, options=RemaxOptions, credit="episode")
def remax(batch: CreditBatch, options: RemaxOptions) -> Advantages:
    return batch.spread(batch.episode_returns() - batch.greedy_returns())
