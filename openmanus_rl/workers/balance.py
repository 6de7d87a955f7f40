"""Rows over ranks so that none waits long for the others, and rows that begin alike stay together."""

import heapq
from collections.abc import Sequence

import torch

from openmanus_rl.models.trie import Trie
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.batching import token_rows
from openmanus_rl.workers.parallel import rank, rank_count

CLOSE = 1.05
"""A rank may have this many times an equal part before trees are cut to divide better."""


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


def tree_shares(trie: Trie, ranks: int) -> list[list[int]]:
    """Every row once: the rows of each rank, ascending, with whole trees on a rank and about equal tokens to compute.

    Where that does not divide well, trees are cut, first where least is shared, until it does or no cut helps.
    """
    best: list[list[int]] = []
    least = float("inf")
    for cut_below in sorted({shared + 1 for shared in (0, *trie.shared)}):
        trees = trie.trees(cut_below)
        costs = [float(tree.tokens) for tree in trees]
        shares = balanced_shares(costs, ranks)
        load = max(sum(costs[tree] for tree in share) for share in shares)
        if load < least:
            best = [sorted(row for tree in share for row in trees[tree].order) for share in shares]
            least = load
        if least <= CLOSE * trie.tokens / ranks:
            break
    return best


def shares(data: DataProto, ranks: int) -> list[list[int]]:
    """The rows of each rank; where a batch says how long rows are but not which tokens they have, by length alone."""
    if "input_ids" in data.batch:
        return tree_shares(Trie.of(token_rows(data)), ranks)
    return balanced_shares(data.batch["attention_mask"].sum(dim=1).double().tolist(), ranks)


def own_rows(data: DataProto) -> torch.Tensor:
    """The rows that this rank computes of a batch that every rank has."""
    if rank_count() == 1:
        return torch.arange(len(data))
    return torch.tensor(shares(data, rank_count())[rank()], dtype=torch.long)
