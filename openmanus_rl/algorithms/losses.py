"""What a policy loss sees and gives back, and how token losses become one number.

A mini-batch is worked off in micro-batches of any size. Denominators are counted once over the whole mini-batch, so the
sum of the micro-batches' losses, and of their gradients, is that of the mini-batch.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.algorithms.masks import require_bool

Aggregation = Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]

LOG_RATIO_LIMIT = 20.0
"""Log-ratios are clamped to this size before they are exponentiated."""


@dataclass(frozen=True)
class LossInputs:
    """The columns of a micro-batch that a policy loss may use."""

    log_probs_RT: Tensor
    """Under the current policy; the gradient flows here."""
    old_log_probs_RT: Tensor
    """Under the proximal policy."""
    advantages_RT: Tensor
    response_mask_RT: Tensor
    """True on sampled tokens only."""

    def __post_init__(self) -> None:
        require_bool(self.response_mask_RT)

    def log_ratio_RT(self) -> Tensor:
        """How much more likely each sampled token is than under the proximal policy; 0 where none was sampled."""
        return torch.where(self.response_mask_RT, self.log_probs_RT - self.old_log_probs_RT, 0)


@dataclass(frozen=True)
class TokenLoss:
    """A loss for each token, zero where none was sampled."""

    loss_RT: Tensor
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Metrics as sums over sampled tokens; all micro-batches' sums over `Denominators.tokens` are the means."""


@dataclass(frozen=True)
class Denominators:
    """How many tokens and episodes a mini-batch has, over all micro-batches and ranks."""

    tokens: int
    episodes: int
    """Episodes with a sampled token; one of several rows counts once."""
    episode_tokens_R: Tensor
    """Sampled tokens in the whole episode that a row belongs to."""
    length_norm: int | None = None
    """The constant of `seq-mean-token-sum-norm`: the same for every mini-batch of a run."""

    @classmethod
    def of(cls, response_mask_RT: Tensor, episode_index_R: Tensor, length_norm: int | None = None) -> "Denominators":
        """Count the whole mini-batch."""
        require_bool(response_mask_RT)
        row_tokens_R = response_mask_RT.sum(-1)
        names_E, episode_R, _ = distinct(episode_index_R)
        tokens_E = row_tokens_R.new_zeros(len(names_E)).index_add(0, episode_R, row_tokens_R)
        return cls(int(row_tokens_R.sum()), int((tokens_E > 0).sum()), tokens_E[episode_R], length_norm)

    def select(self, rows: Tensor | slice) -> "Denominators":
        """Those of a micro-batch: the counts stay the mini-batch's."""
        return replace(self, episode_tokens_R=self.episode_tokens_R[rows])


def aggregate(loss_RT: Tensor, response_mask_RT: Tensor, mode: Aggregation, denominators: Denominators) -> Tensor:
    """A micro-batch's share of the mini-batch's loss; 0 with a zero gradient where nothing was sampled."""
    loss_R = torch.where(response_mask_RT, loss_RT, 0).sum(-1)
    episodes = max(denominators.episodes, 1)
    if mode == "token-mean":
        return loss_R.sum() / max(denominators.tokens, 1)
    if mode == "seq-mean-token-sum":
        return loss_R.sum() / episodes
    if mode == "seq-mean-token-mean":
        return (loss_R / denominators.episode_tokens_R.clamp(min=1)).sum() / episodes
    if mode == "seq-mean-token-sum-norm":
        if denominators.length_norm is None:
            raise ValueError("seq-mean-token-sum-norm needs Denominators with a length_norm")
        return loss_R.sum() / (episodes * denominators.length_norm)
    raise ValueError(f"there is no aggregation {mode!r}")
