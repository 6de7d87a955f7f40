"""How far the policy is from the reference, from the log-probs of sampled tokens only.

Schulman 2020, "Approximating KL Divergence". Each estimate is a function of d = log p(token) - log p_ref(token).

In a loss it is the gradient that counts, and only that of k2, d times the gradient of log p, is the gradient of the
KL on average. A `+` after the name takes the estimate's value with that gradient.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from openmanus_rl.algorithms.losses import LOG_RATIO_LIMIT
from openmanus_rl.algorithms.masks import require_bool
from openmanus_rl.registry import Registry

KL_ESTIMATES: Registry[Callable[[Tensor], Tensor]] = Registry("KL estimate")


@KL_ESTIMATES.register("k1")
def _k1(difference: Tensor) -> Tensor:
    """d: right on average, negative for some tokens."""
    return difference


@KL_ESTIMATES.register("abs")
def _abs(difference: Tensor) -> Tensor:
    """|d|: punishes every difference, in either direction."""
    return difference.abs()


@KL_ESTIMATES.register("k2")
def _k2(difference: Tensor) -> Tensor:
    """d² / 2: right to second order, never negative."""
    return difference.square() / 2


@KL_ESTIMATES.register("k3")
def _k3(difference: Tensor) -> Tensor:
    """exp(-d) - 1 + d: right on average, never negative, low variance."""
    clamped = difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return torch.expm1(-clamped) + clamped


def kl_estimate(log_probs: Tensor, ref_log_probs: Tensor, kind: str) -> Tensor:
    """The estimate for each token; the gradient flows through `log_probs`."""
    difference = log_probs - ref_log_probs
    value = KL_ESTIMATES.lookup(kind.removesuffix("+"))(difference)
    if not kind.endswith("+"):
        return value
    carrier = KL_ESTIMATES["k2"](difference)
    return value.detach() + (carrier - carrier.detach())


def apply_kl_penalty(
    token_level_scores: Tensor,
    old_log_probs: Tensor,
    ref_log_probs: Tensor,
    response_mask: Tensor,
    coefficient: float,
    kind: str,
) -> tuple[Tensor, float]:
    """Subtract the KL from the scores of sampled tokens: the token rewards, and the mean KL of a sampled token."""
    require_bool(response_mask)
    kl = torch.where(response_mask, kl_estimate(old_log_probs, ref_log_probs, kind), 0)
    mean_kl = kl.double().sum() / response_mask.sum().clamp(min=1)
    return token_level_scores - coefficient * kl, float(mean_kl)
