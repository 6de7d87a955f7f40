import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openmanus_rl.algorithms.losses import Denominators, aggregate

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
LENGTH_NORM = 16

# Three episodes: 7 has two rows (2 + 1 tokens), 2 has one row (3 tokens), 5 has one row without a sampled token.
LOSS = torch.tensor([[1.0, 2.0, 99.0], [3.0, 99.0, 99.0], [4.0, 5.0, 6.0], [99.0, 99.0, 99.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0]], dtype=torch.bool)
EPISODES = torch.tensor([7, 7, 2, 5])


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 21 / 6),
        ("seq-mean-token-sum", (6 + 15) / 2),
        ("seq-mean-token-mean", (6 / 3 + 15 / 3) / 2),
        ("seq-mean-token-sum-norm", (6 + 15) / LENGTH_NORM / 2),
    ],
)
def test_aggregation_by_hand_counts_an_episode_of_two_rows_once(mode, expected):
    denominators = Denominators.of(MASK, EPISODES, LENGTH_NORM)
    assert aggregate(LOSS, MASK, mode, denominators).item() == pytest.approx(expected)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), mode=st.sampled_from(MODES), cut=st.integers(1, 7))
def test_micro_batches_of_any_size_sum_to_the_mini_batch_in_loss_and_gradient(seed, mode, cut):
    generator = torch.Generator().manual_seed(seed)
    loss = torch.randn(8, 5, dtype=torch.float64, generator=generator).requires_grad_()
    mask = torch.rand(8, 5, generator=generator) < 0.5
    episodes = torch.randint(0, 4, (8,), generator=generator)
    denominators = Denominators.of(mask, episodes, LENGTH_NORM)
    whole = aggregate(loss, mask, mode, denominators)
    (gradient,) = torch.autograd.grad(whole, loss)

    order = torch.randperm(8, generator=generator)
    parts = [aggregate(loss[rows], mask[rows], mode, denominators.select(rows)) for rows in order.split([cut, 8 - cut])]
    torch.testing.assert_close(sum(parts), whole)
    torch.testing.assert_close(torch.autograd.grad(sum(parts), loss)[0], gradient)


@pytest.mark.parametrize("mode", MODES)
def test_padding_rows_and_columns_change_nothing(mode):
    padded_loss = torch.nn.functional.pad(LOSS, (0, 2, 0, 1), value=torch.nan)
    padded_mask = torch.nn.functional.pad(MASK, (0, 2, 0, 1))
    padded_episodes = torch.cat([EPISODES, torch.tensor([1000])])
    padded = aggregate(padded_loss, padded_mask, mode, Denominators.of(padded_mask, padded_episodes, LENGTH_NORM))
    assert padded == aggregate(LOSS, MASK, mode, Denominators.of(MASK, EPISODES, LENGTH_NORM))


def test_the_constant_length_must_be_given_where_it_is_used():
    with pytest.raises(ValueError, match="length_norm"):
        aggregate(LOSS, MASK, "seq-mean-token-sum-norm", Denominators.of(MASK, EPISODES))


def test_an_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="tokenmean"):
        aggregate(LOSS, MASK, "tokenmean", Denominators.of(MASK, EPISODES))
