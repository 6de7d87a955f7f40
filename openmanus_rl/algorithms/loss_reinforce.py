"""REINFORCE's loss: follow the advantage, with no regard to how far the policy has moved.

Williams 1992. Right for one update on what the present policy sampled; there is no ratio and no clip.
"""

import torch

from openmanus_rl.algorithms.losses import LossInputs, TokenLoss
from openmanus_rl.algorithms.registry import policy_loss
from openmanus_rl.config.base import Config


class ReinforceOptions(Config):
    """The loss `reinforce` has no options."""


@policy_loss("reinforce", options=ReinforceOptions)
def reinforce(inputs: LossInputs, options: ReinforceOptions) -> TokenLoss:
    mask_RT = inputs.response_mask_RT
    log_probs_RT = torch.where(mask_RT, inputs.log_probs_RT, 0)
    advantages_RT = torch.where(mask_RT, inputs.advantages_RT, 0)
    return TokenLoss(-advantages_RT * log_probs_RT, {"ppo_kl": -inputs.log_ratio_RT().detach().sum()})
