"""CISPO: follow the advantage of every token, weighted by how much more likely it has become, up to a bound.

MiniMax 2025 (MiniMax-M1). The bounded ratio is a weight and carries no gradient. So a token beyond the bound still
learns, where PPO's clip would drop it: rare words that turn a thought around are often such tokens.
"""

import torch
from pydantic import Field

from openmanus_rl.algorithms.losses import LOG_RATIO_LIMIT, LossInputs, TokenLoss
from openmanus_rl.algorithms.registry import policy_loss
from openmanus_rl.config.base import Config


class CispoOptions(Config):
    """Options of the loss `cispo`."""

    clip_low: float = Field(1.0, ge=0, le=1)
    """How far the weight may fall below 1; at 1 there is no lower bound."""
    clip_high: float = Field(0.28, ge=0)
    """How far the weight may rise above 1."""


@policy_loss("cispo", options=CispoOptions)
def cispo(inputs: LossInputs, options: CispoOptions) -> TokenLoss:
    mask_RT = inputs.response_mask_RT
    advantages_RT = torch.where(mask_RT, inputs.advantages_RT, 0)
    log_probs_RT = torch.where(mask_RT, inputs.log_probs_RT, 0)
    log_ratio_RT = inputs.log_ratio_RT().detach()
    ratio_RT = log_ratio_RT.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    weight_RT = ratio_RT.clamp(1 - options.clip_low, 1 + options.clip_high)
    sums = {"ppo_kl": -log_ratio_RT.sum(), "pg_clipfrac": (weight_RT != ratio_RT).sum()}
    return TokenLoss(-weight_RT * advantages_RT * log_probs_RT, sums)
