"""Drawing the next token of many rows at once, each row by its own parameters and its own stream of random numbers.

The t-th token of a request is drawn with a hash of (seed, t), so it does not matter what else is in the batch, when the
request joined, or how often the batch was rebuilt.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from openmanus_rl.inference.base import SamplingParams

_GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_WORD = (1 << 64) - 1


def uniforms(seeds_R: NDArray[np.uint64], indices_R: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The `indices`-th number in [0, 1) of each seed's stream, with 52 random bits.

    Splitmix64 as a counter-based generator. The seed is hashed too, so that neighbouring seeds have unlike streams.
    """
    bits_R = _mix(_mix(seeds_R) + (indices_R + np.uint64(1)) * _GOLDEN_GAMMA)
    return (bits_R >> np.uint64(12)).astype(np.float64) * 2.0**-52


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class Sampler:
    """The sampling parameters of a batch as tensors; each call draws the next token of every row.

    `drawn` says how many tokens each row's request has drawn before. What no row asks for costs nothing.
    """

    def __init__(
        self, params: Sequence[SamplingParams], seeds: Sequence[int], drawn: Sequence[int], device: torch.device
    ) -> None:
        self._device = device
        self._seeds_R = np.array([seed & _WORD for seed in seeds], dtype=np.uint64)
        self._drawn_R = np.array(drawn, dtype=np.uint64)
        greedy = [p.temperature == 0 for p in params]
        self._all_greedy = all(greedy)
        self._greedy_R = torch.tensor(greedy, device=device) if any(greedy) else None
        temperatures = [p.temperature or 1.0 for p in params]
        unit = all(temperature == 1.0 for temperature in temperatures)
        self._temperatures_R1 = None if unit else torch.tensor(temperatures, device=device).unsqueeze(1)
        self._top_k_R1 = self._top_p_R1 = None
        if any(p.top_k > 0 for p in params):
            no_limit = torch.iinfo(torch.int64).max
            self._top_k_R1 = torch.tensor([p.top_k or no_limit for p in params], device=device).unsqueeze(1)
        if any(p.top_p < 1 for p in params):
            # Infinity rather than 1: a sum of probabilities may be rounded to more than 1.
            limits = [p.top_p if p.top_p < 1 else float("inf") for p in params]
            self._top_p_R1 = torch.tensor(limits, device=device).unsqueeze(1)

    def __call__(self, logits_RV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and their log-probs (0 for greedy rows, not finite where the logits are not), both of shape [R]."""
        logits_RV = logits_RV.float()
        if self._all_greedy:
            highest_R, tokens_R = logits_RV.max(dim=-1)
            return tokens_R, highest_R - highest_R
        scaled_RV = logits_RV if self._temperatures_R1 is None else logits_RV / self._temperatures_R1
        log_probs_RV = torch.log_softmax(self._truncate(scaled_RV), dim=-1)
        tokens_R = self._draw(log_probs_RV)
        log_probs_R = log_probs_RV.gather(1, tokens_R.unsqueeze(1)).squeeze(1)
        if self._greedy_R is not None:
            highest_R, best_R = logits_RV.max(dim=-1)
            tokens_R = torch.where(self._greedy_R, best_R, tokens_R)
            log_probs_R = torch.where(self._greedy_R, highest_R - highest_R, log_probs_R)
        return tokens_R, log_probs_R

    def _draw(self, log_probs_RV: torch.Tensor) -> torch.Tensor:
        """Inverse of the cumulative distribution at each row's next random number."""
        uniforms_R1 = torch.from_numpy(uniforms(self._seeds_R, self._drawn_R)).to(self._device).unsqueeze(1)
        self._drawn_R += np.uint64(1)
        cumulative_RV = log_probs_RV.exp().cumsum(dim=-1, dtype=torch.float64)
        # `right` finds the first entry above the target, which is never one of probability 0.
        found_R1 = torch.searchsorted(cumulative_RV, uniforms_R1 * cumulative_RV[:, -1:], right=True)
        # Only a row of NaN runs past the end; its log-prob tells the caller.
        return found_R1.squeeze(1).clamp_(max=log_probs_RV.shape[1] - 1)

    def _truncate(self, scaled_RV: torch.Tensor) -> torch.Tensor:
        """Top-k, then top-p of what is left, as -inf in place of the tokens that are cut. The best always stays."""
        if self._top_k_R1 is None and self._top_p_R1 is None:
            return scaled_RV
        sorted_RV, order_RV = scaled_RV.sort(dim=-1, descending=True, stable=True)
        if self._top_k_R1 is not None:
            rank_V = torch.arange(sorted_RV.shape[1], device=self._device)
            sorted_RV = sorted_RV.masked_fill(rank_V >= self._top_k_R1, float("-inf"))
        if self._top_p_R1 is not None:
            probs_RV = torch.softmax(sorted_RV, dim=-1)
            mass_before_RV = probs_RV.cumsum(dim=-1) - probs_RV
            sorted_RV = sorted_RV.masked_fill(mass_before_RV >= self._top_p_R1, float("-inf"))
        # Back in the order of the vocabulary: a row without limits draws the same token whoever its neighbours are.
        return torch.empty_like(sorted_RV).scatter_(1, order_RV, sorted_RV)
