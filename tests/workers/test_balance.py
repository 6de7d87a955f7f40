"""Rows over ranks: each once, and no rank has much more than its part."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import tokens_of

from openmanus_rl.workers.balance import balanced_shares, own_rows, token_costs

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


def test_a_row_costs_its_tokens_without_padding(batch):
    assert token_costs(batch) == [len(tokens_of(batch, row)[0]) for row in range(len(batch))]


def test_a_single_process_has_all_rows(batch):
    assert own_rows(batch).tolist() == list(range(len(batch)))
