"""PPO's clipped loss: follow the advantage, but stop once a token's probability has moved far enough.

Schulman et al. 2017. The clip is not symmetric (Yu et al. 2025, DAPO): more room above lets rare tokens grow. The dual
clip (Ye et al. 2020) bounds the loss of a bad token that became much more likely.
"""

import torch
from pydantic import Field

from openmanus_rl.algorithms.losses import LOG_RATIO_LIMIT, LossInputs, TokenLoss
from openmanus_rl.algorithms.registry import policy_loss
from openmanus_rl.config.base import Config


class PpoOptions(Config):
    """Options of the loss `ppo`."""

    clip_low: float = Field(0.2, ge=0, le=1)
    """How far the probability ratio may fall below 1."""
    clip_high: float = Field(0.28, ge=0)
    """How far the probability ratio may rise above 1."""
    dual_clip: float | None = Field(None, gt=1)
    """Largest ratio that counts where the advantage is negative; unset, there is no bound."""


@policy_loss("ppo", options=PpoOptions)
def ppo(inputs: LossInputs, options: PpoOptions) -> TokenLoss:
    mask_RT = inputs.response_mask_RT
    advantages_RT = torch.where(mask_RT, inputs.advantages_RT, 0)
    log_ratio_RT = inputs.log_ratio_RT()
    ratio_RT = log_ratio_RT.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()

    free_RT = -advantages_RT * ratio_RT
    held_RT = -advantages_RT * ratio_RT.clamp(1 - options.clip_low, 1 + options.clip_high)
    loss_RT = torch.maximum(free_RT, held_RT)
    clipped_RT = held_RT > free_RT
    sums = {"ppo_kl": -log_ratio_RT.detach().sum(), "pg_clipfrac": clipped_RT.sum()}
    if options.dual_clip is not None:
        bound_RT = -advantages_RT * options.dual_clip
        bounded_RT = (advantages_RT < 0) & (bound_RT < loss_RT)
        loss_RT = torch.where(bounded_RT, bound_RT, loss_RT)
        sums["pg_clipfrac_lower"] = bounded_RT.sum()
    return TokenLoss(loss_RT, sums)
