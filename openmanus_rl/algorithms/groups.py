"""Statistics of a group: the episodes of one task in one step. They count episodes, however many rows each has."""

import torch
from torch import Tensor

from openmanus_rl.algorithms.credit import CreditBatch
from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.errors import UserError

_SAME = 1e-6
"""Returns of a group that differ by no more than this share of the largest, or of 1, are equal but for rounding."""


def group_mean_std(returns_E: Tensor, group_index_E: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (over n - 1) of each episode's group, as one number an episode.

    A group of one has deviation 0, as has one whose returns are all equal. Returns that differ by rounding only are
    equal: each is then its own mean, so that noise is never taken for a difference.
    """
    _, group_E, size_G = distinct(group_index_E)
    zeros_G = returns_E.new_zeros(len(size_G))
    lowest_G, highest_G = (
        zeros_G.scatter_reduce(0, group_E, returns_E, which, include_self=False) for which in ("amin", "amax")
    )
    largest_G = torch.maximum(lowest_G.abs(), highest_G.abs())
    equal_G = highest_G - lowest_G <= _SAME * largest_G.clamp(min=1)
    lowest_E = lowest_G[group_E]
    mean_E = lowest_E + (zeros_G.index_add(0, group_E, returns_E - lowest_E) / size_G)[group_E]
    mean_E = torch.where(equal_G[group_E], returns_E, mean_E)
    squares_G = zeros_G.index_add(0, group_E, (returns_E - mean_E) ** 2)
    std_G = (squares_G / (size_G - 1).clamp(min=1)).sqrt()
    return mean_E, std_G[group_E]


def differing_groups(returns_E: Tensor, group_index_E: Tensor) -> Tensor:
    """Names of the groups whose returns differ: what a group estimator can learn from."""
    _, std_E = group_mean_std(returns_E, group_index_E)
    return distinct(group_index_E[std_E > 0]).names


def zero_variance_groups(batch: CreditBatch) -> Tensor:
    """Names of the groups of siblings that all have the same return: they teach a group estimator nothing."""
    groups = distinct(batch.group_index_E)
    differ_G = torch.isin(groups.names, differing_groups(batch.episode_returns(), batch.group_index_E))
    return groups.names[~differ_G & (groups.counts > 1)]


def groups_of_one(batch: CreditBatch) -> Tensor:
    """Names of the groups with a single episode, as is left where all its siblings failed."""
    groups = distinct(batch.group_index_E)
    return groups.names[groups.counts == 1]


def require_siblings(batch: CreditBatch, estimator_name: str) -> None:
    """A lone episode has no baseline: neither its raw return nor 0 would be the truth."""
    lone = groups_of_one(batch)
    if len(lone):
        raise UserError(
            f"group {int(lone[0])} has one episode: {estimator_name} compares siblings and needs at least 2.",
            "Set rollout.group_size to 2 or more; leave out a group whose other episodes failed.",
        )
