"""Off-policy correction: what the engine sampled with other probabilities than the trainer's counts for more or less.

The behaviour policy is the engine that sampled, the proximal policy the trainer before the update; they differ by
precision, by kernels, or by an update in between. Truncated importance sampling (Ionides 2008; Yao et al. 2025)
weights a token by proximal over behaviour probability, up to a cap. Episodes that are too far off can be left out
whole.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.algorithms.losses import LOG_RATIO_LIMIT
from openmanus_rl.algorithms.masks import require_bool

CorrectionKind = Literal["none", "token", "sequence"]


@dataclass(frozen=True)
class Correction:
    """A weight for the loss of each token, 0 on tokens that do not count; and what it came to."""

    weights_RT: Tensor
    kept_R: Tensor
    """False on the rows of episodes that are too far off to learn from at all."""
    metrics: dict[str, float]


def off_policy_correction(
    behaviour_RT: Tensor,
    proximal_RT: Tensor,
    response_mask_RT: Tensor,
    episode_index_R: Tensor,
    kind: CorrectionKind,
    cap: float,
    band: float | None,
) -> Correction:
    """The weights from the log-probs of both policies.

    `token`: each token's own ratio; `sequence`: the ratio of its whole episode, all segments; `none`: 1. No weight is
    above `cap`. An episode whose mean ratio (geometric, a token) is outside 1/`band` to `band` is not kept.
    """
    require_bool(response_mask_RT)
    log_ratio_RT = torch.where(response_mask_RT, proximal_RT - behaviour_RT, 0).double()
    _, episode_R, rows_E = distinct(episode_index_R)
    zeros_E = log_ratio_RT.new_zeros(len(rows_E))
    total_E = zeros_E.index_add(0, episode_R, log_ratio_RT.sum(-1))
    tokens_E = zeros_E.index_add(0, episode_R, response_mask_RT.sum(-1).double())
    if kind == "token":
        chosen_RT = log_ratio_RT
    elif kind == "sequence":
        chosen_RT = total_E[episode_R, None].expand_as(log_ratio_RT)
    else:
        chosen_RT = torch.zeros_like(log_ratio_RT)
    ratio_RT = chosen_RT.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    far_E = torch.zeros_like(total_E, dtype=torch.bool)
    if band is not None:
        far_E = (total_E / tokens_E.clamp(min=1)).abs() > torch.tensor(band, dtype=torch.float64).log()
    kept_R = ~far_E[episode_R]
    counts_RT = response_mask_RT & kept_R.unsqueeze(-1)
    weights_RT = ratio_RT.clamp(max=cap) * counts_RT
    tokens = max(int(counts_RT.sum()), 1)
    metrics = {
        "actor/correction_weight": float(weights_RT.sum()) / tokens,
        "actor/correction_capped": float(((ratio_RT > cap) & counts_RT).sum()) / tokens,
        "actor/correction_rejected": float(far_E.double().mean()) if len(far_E) else 0.0,
    }
    return Correction(weights_RT.to(behaviour_RT.dtype), kept_R, metrics)
