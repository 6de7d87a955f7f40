"""Masks are bool, always."""

import torch
from torch import Tensor


def require_bool(response_mask: Tensor) -> None:
    """An integer mask would index rows 0 and 1 where a bool one selects tokens."""
    if response_mask.dtype != torch.bool:
        raise TypeError(f"response_mask must be bool, not {response_mask.dtype}: integers would index")
