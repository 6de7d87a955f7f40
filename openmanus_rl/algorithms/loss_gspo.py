"""GSPO: clip whole sequences, not tokens: follow the advantage until the sequence's probability has moved far enough.

Zheng et al. 2025. The ratio is the geometric mean of the tokens' ratios, far less noisy than any of them, so its bounds
are small. The sequence is what was sampled in one row: all turns of a segment. This is the paper's GSPO-token: where a
row's advantages are equal its gradient is GSPO's, and where they differ each token keeps its own. Its mean is over
sequences, each by its own length.
"""

import torch
from pydantic import Field

from openmanus_rl.algorithms.losses import LOG_RATIO_LIMIT, LossInputs, TokenLoss
from openmanus_rl.algorithms.registry import policy_loss
from openmanus_rl.config.base import Config


class GspoOptions(Config):
    """Options of the loss `gspo`."""

    clip_low: float = Field(3e-4, ge=0, le=1)
    """How far the sequence's ratio may fall below 1."""
    clip_high: float = Field(4e-4, ge=0)
    """How far the sequence's ratio may rise above 1."""


@policy_loss("gspo", options=GspoOptions, aggregation="seq-mean-token-mean")
def gspo(inputs: LossInputs, options: GspoOptions) -> TokenLoss:
    mask_RT = inputs.response_mask_RT
    advantages_RT = torch.where(mask_RT, inputs.advantages_RT, 0)
    log_ratio_RT = inputs.log_ratio_RT()
    mean_R = log_ratio_RT.detach().sum(-1, keepdim=True) / mask_RT.sum(-1, keepdim=True).clamp(min=1)
    # The value is the sequence's ratio; the gradient goes to each token by itself.
    own_RT = log_ratio_RT - log_ratio_RT.detach()
    ratio_RT = (mean_R.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT) + own_RT).exp()

    free_RT = -advantages_RT * ratio_RT
    held_RT = -advantages_RT * ratio_RT.clamp(1 - options.clip_low, 1 + options.clip_high)
    clipped_RT = held_RT > free_RT
    sums = {"ppo_kl": -log_ratio_RT.detach().sum(), "pg_clipfrac": clipped_RT.sum()}
    return TokenLoss(torch.maximum(free_RT, held_RT), sums)
