"""Rows over ranks: each once, and no rank has much more than its part."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openmanus_rl.models.trie import Trie
from openmanus_rl.workers.balance import balanced_shares, own_rows, tree_shares

LENGTHS = {
    "uniform": lambda dice, count: torch.randint(1, 2000, [count], generator=dice),
    "skewed": lambda dice, count: (torch.randn(count, generator=dice).mul(0.8).exp() * 300).long() + 1,
    "two kinds": lambda dice, count: torch.tensor([60, 1024])[torch.randint(0, 2, [count], generator=dice)],
    "equal": lambda dice, count: torch.full([count], 512),
}


@settings(max_examples=150, deadline=None)
@given(
    ranks=st.integers(1, 16),
    rows_a_rank=st.integers(32, 80),
    extra=st.integers(0, 15),
    kind=st.sampled_from(sorted(LENGTHS)),
    seed=st.integers(0, 10_000),
)
def test_no_rank_has_more_than_a_twentieth_above_the_ideal(ranks, rows_a_rank, extra, kind, seed):
    dice = torch.Generator().manual_seed(seed)
    costs = LENGTHS[kind](dice, ranks * rows_a_rank + extra).double().tolist()
    shares = balanced_shares(costs, ranks)
    ideal = max(sum(costs) / ranks, max(costs))
    assert max(sum(costs[row] for row in share) for share in shares) <= 1.05 * ideal


@settings(max_examples=100, deadline=None)
@given(costs=st.lists(st.floats(0, 1e6), max_size=40), ranks=st.integers(1, 9))
def test_every_row_is_in_one_share_and_shares_are_ascending(costs, ranks):
    shares = balanced_shares(costs, ranks)
    assert len(shares) == ranks
    assert sorted(row for share in shares for row in share) == list(range(len(costs)))
    assert all(share == sorted(share) for share in shares)
    assert shares == balanced_shares(list(costs), ranks)


def test_with_fewer_rows_than_ranks_some_have_none():
    assert sorted(balanced_shares([5.0, 3.0], 4)) == [[], [], [0], [1]]


def test_rows_that_cost_nothing_are_divided_too():
    assert [len(share) for share in balanced_shares([0.0] * 6, 3)] == [2, 2, 2]


def groups_of_rows(seed, groups, size, prompt, own):
    """Groups of rows that share a prompt of up to `prompt` tokens; none shares more than a few with another's."""
    dice = np.random.default_rng(seed)
    rows = []
    for _ in range(groups):
        beginning = dice.integers(0, 50, dice.integers(5, prompt + 1))
        rows += [np.concatenate([beginning, dice.integers(0, 50, dice.integers(1, own))]) for _ in range(size)]
    return [rows[row] for row in dice.permutation(len(rows))]


def computed(rows):
    """Tokens to compute, with each shared beginning once: as many as there are different beginnings."""
    return len({tuple(row[: end + 1]) for row in rows for end in range(len(row))})


@settings(max_examples=40, deadline=None)
@given(ranks=st.integers(2, 6), seed=st.integers(0, 10_000), groups_a_rank=st.integers(12, 16))
def test_of_many_trees_each_stays_whole_and_no_rank_has_more_than_a_twentieth_above_the_ideal(
    ranks, seed, groups_a_rank
):
    rows = groups_of_rows(seed, groups_a_rank * ranks, size=4, prompt=20, own=12)
    divided = tree_shares(Trie.of(rows), ranks)
    assert sorted(row for share in divided for row in share) == list(range(len(rows)))
    loads = [computed([rows[row] for row in share]) for share in divided]
    assert max(loads) <= 1.05 * computed(rows) / ranks
    rank_of = {row: which for which, share in enumerate(divided) for row in share}
    prompts = {}
    for row, tokens in enumerate(rows):
        prompts.setdefault(tuple(tokens[:5]), set()).add(rank_of[row])
    assert all(len(ranks_of_prompt) == 1 for ranks_of_prompt in prompts.values())


def test_one_tree_is_cut_where_least_is_shared_rather_than_left_to_one_rank():
    beginning = list(range(10))
    rows = [np.array([*beginning, *([50] * 8 if row < 2 else [60] * 8), row]) for row in range(4)]
    divided = tree_shares(Trie.of(rows), 2)
    assert sorted(divided) == [[0, 1], [2, 3]]


def test_a_single_process_has_all_rows(batch):
    assert own_rows(batch).tolist() == list(range(len(batch)))
