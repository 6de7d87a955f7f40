"""The critic's loss: half the squared distance to the return.

As in PPO's original code, a value that moved farther than `clip` from its old one is also judged as if it had stopped
there, and the worse of the two counts: it gets no gradient for going on.
"""

import torch
from torch import Tensor

from openmanus_rl.algorithms.losses import TokenLoss
from openmanus_rl.algorithms.masks import require_bool


def value_loss(
    values_RT: Tensor, old_values_RT: Tensor, returns_RT: Tensor, response_mask_RT: Tensor, clip: float
) -> TokenLoss:
    """The loss of each sampled token; `sums` counts those where the clip decided."""
    require_bool(response_mask_RT)
    error_RT = torch.where(response_mask_RT, values_RT - returns_RT, 0)
    near_RT = old_values_RT + (values_RT - old_values_RT).clamp(-clip, clip)
    near_error_RT = torch.where(response_mask_RT, near_RT - returns_RT, 0)
    squared_RT, near_squared_RT = error_RT**2, near_error_RT**2
    clipped_RT = near_squared_RT > squared_RT
    return TokenLoss(0.5 * torch.maximum(squared_RT, near_squared_RT), {"vf_clipfrac": clipped_RT.sum()})
