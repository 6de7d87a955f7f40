"""GAE: a sampled token is worth how much better things went after it than the critic expected before it.

Schulman et al. 2016. Time is counted in sampled tokens: one step leads from a sampled token to the next one, across the
observation between them and across segments. An episode that was cut short ends with the critic's value, else with 0.
"""

import torch
from pydantic import Field
from torch import Tensor

from openmanus_rl.algorithms.credit import Advantages, CreditBatch
from openmanus_rl.algorithms.ragged import Ragged, discounted_sums
from openmanus_rl.algorithms.registry import estimator
from openmanus_rl.config.base import Config


class GaeOptions(Config):
    """Options of `gae`."""

    gamma: float = Field(1.0, ge=0, le=1)
    """Discount from one sampled token to the next."""
    lam: float = Field(0.95, ge=0, le=1)
    """0 trusts the critic one token ahead, 1 only what was really earned."""
    whiten: bool = True
    """Shift and scale advantages to mean 0 and standard deviation 1 over the sampled tokens of the step."""


@estimator("gae", requires={"critic"}, options=GaeOptions)
def gae(batch: CreditBatch, options: GaeOptions) -> Advantages:
    rewards_N, values_N, lines = batch.sampled(batch.token_level_rewards_RT), batch.critic_values(), batch.episodes
    surprise_N = surprise(rewards_N, values_N, lines, batch.end_values_E(), options.gamma)
    # Summed in float64: over thousands of tokens a float32 loses its last digits.
    sums_SL = discounted_sums(lines.pad(surprise_N).double(), options.gamma * options.lam)
    advantages_N = lines.flat(sums_SL.to(values_N.dtype))
    shown_N = whiten(advantages_N) if options.whiten else advantages_N
    return Advantages(batch.rows(shown_N), batch.rows(advantages_N + values_N))


def surprise(rewards_N: Tensor, values_N: Tensor, lines: Ragged, end_values_S: Tensor, gamma: float) -> Tensor:
    """How much better each step went than the critic expected: reward and value after it, minus the value before."""
    next_values_N = values_N.roll(-1)
    next_values_N[lines.ends_F] = end_values_S[lines.filled_F]
    return next_values_N.mul_(gamma).add_(rewards_N).sub_(values_N)


def temporal_difference(
    rewards_N: Tensor, values_N: Tensor, lines: Ragged, end_values_S: Tensor, gamma: float, lam: float
) -> Tensor:
    """GAE along each line: the sum of (gamma * lam)^k times the critic's surprise k steps later."""
    surprise_N = surprise(rewards_N, values_N, lines, end_values_S, gamma)
    return lines.flat(discounted_sums(lines.pad(surprise_N), gamma * lam))


def whiten(advantages_N: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1; all zeros where nothing differs.

    Counted in float64 from one of them, so that equal ones are exactly their mean, and with 1e-8 added to the variance,
    so that what differs by rounding only stays small.
    """
    if not len(advantages_N):
        return advantages_N
    above_N = advantages_N.double() - advantages_N[0].double()
    variance, mean = torch.var_mean(above_N, correction=0)
    return ((above_N - mean) / (variance + 1e-8).sqrt()).to(advantages_N.dtype)
