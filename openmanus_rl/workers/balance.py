"""Rows over ranks so that none waits long for the others."""

import heapq
from collections.abc import Sequence

import torch

from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.parallel import rank, rank_count


def token_costs(data: DataProto) -> list[float]:
    """What each row costs to compute: its tokens, padding left out."""
    costs: list[float] = data.batch["attention_mask"].sum(dim=1).double().tolist()
    return costs


def balanced_shares(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Every row once: the rows of each rank, ascending. A rank has none where there are fewer rows than ranks.

    The costliest row first, each to the rank that has least so far (Graham 1969).
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(0.0, 0, which) for which in range(ranks)]
    for row in sorted(range(len(costs)), key=lambda row: (-costs[row], row)):
        load, count, which = heapq.heappop(loads)
        shares[which].append(row)
        heapq.heappush(loads, (load + costs[row], count + 1, which))
    return [sorted(share) for share in shares]


def own_rows(data: DataProto) -> torch.Tensor:
    """The rows that this rank computes of a batch that every rank has."""
    return torch.tensor(balanced_shares(token_costs(data), rank_count())[rank()], dtype=torch.long)
