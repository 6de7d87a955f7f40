"""A changed loss: instead of a clip, a price for every step away from the old policy, the square of the log-ratio.

./train_grpo.sh algorithm.loss=examples/soft_clip_loss.py:soft_clip
"""

import torch
from pydantic import Field

from openmanus_rl.algorithms.losses import LOG_RATIO_LIMIT, LossInputs, TokenLoss
from openmanus_rl.algorithms.registry import policy_loss
from openmanus_rl.config.base import Config


class SoftClipOptions(Config):
    """Options of `soft_clip`, set with algorithm.loss_options.NAME=VALUE."""

    price: float = Field(0.5, ge=0)
    """Weight of the squared log-ratio."""


@policy_loss("soft_clip", options=SoftClipOptions)
def soft_clip(inputs: LossInputs, options: SoftClipOptions) -> TokenLoss:
    """A loss for each sampled token; `sums` become metrics, here `actor/ppo_kl`."""
    log_ratio_RT = inputs.log_ratio_RT().clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    advantages_RT = torch.where(inputs.response_mask_RT, inputs.advantages_RT, 0)
    loss_RT = -advantages_RT * log_ratio_RT.exp() + options.price * log_ratio_RT.square()
    return TokenLoss(loss_RT, {"ppo_kl": -log_ratio_RT.detach().sum()})
