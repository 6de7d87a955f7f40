"""DPO: of two episodes on one task the better one becomes likelier, relative to where the policy started.

Rafailov et al. 2023. An episode's log-prob is that of all its sampled tokens; observations take no part.
"""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import logsigmoid


class PairLoss(NamedTuple):
    """P pairs: the loss of each, and by how much the policy prefers the chosen one more than the reference does."""

    loss_P: Tensor
    margin_P: Tensor


def dpo_loss(
    chosen_P: Tensor, rejected_P: Tensor, reference_chosen_P: Tensor, reference_rejected_P: Tensor, beta: float
) -> PairLoss:
    """-log σ(β · margin), from log-probs of whole episodes under the policy and the reference."""
    margin_P = beta * ((chosen_P - reference_chosen_P) - (rejected_P - reference_rejected_P))
    return PairLoss(-logsigmoid(margin_P), margin_P)
