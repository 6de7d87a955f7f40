"""Statistics of a group: the episodes of one task in one step. They count episodes, however many rows each has."""

from torch import Tensor

from openmanus_rl.algorithms.credit import CreditBatch
from openmanus_rl.algorithms.labels import distinct
from openmanus_rl.errors import UserError


def group_mean_std(returns_E: Tensor, group_index_E: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (over n - 1) of each episode's group, as one number an episode.

    A group of one has deviation 0, as has one whose returns are all equal.
    """
    _, group_E, size_G = distinct(group_index_E)
    zeros_G = returns_E.new_zeros(len(size_G))
    # Counted from the group's lowest return, so that equal returns are exactly their mean.
    lowest_E = zeros_G.scatter_reduce(0, group_E, returns_E, "amin", include_self=False)[group_E]
    mean_E = lowest_E + (zeros_G.index_add(0, group_E, returns_E - lowest_E) / size_G)[group_E]
    squares_G = zeros_G.index_add(0, group_E, (returns_E - mean_E) ** 2)
    std_G = (squares_G / (size_G - 1).clamp(min=1)).sqrt()
    return mean_E, std_G[group_E]


def zero_variance_groups(batch: CreditBatch) -> Tensor:
    """Names of the groups of siblings that all have the same return: they teach a group estimator nothing."""
    _, std_E = group_mean_std(batch.episode_returns(), batch.group_index_E)
    equal = distinct(batch.group_index_E[std_E == 0])
    return equal.names[equal.counts > 1]


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
