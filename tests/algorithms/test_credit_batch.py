from dataclasses import replace

import pytest
import torch
from credit_cases import Played, Token, play, to_batch


def two_segments():
    return to_batch(
        [Played(4, 2, [[Token(0, 1.0), Token(-1)], [Token(1), Token(1, 2.0)]]), Played(3, 2, [[Token(0, 5.0)]])]
    )


def test_an_episodes_return_is_the_sum_over_all_its_rows():
    assert two_segments().episode_returns().tolist() == [5.0, 3.0]


def test_a_spread_advantage_is_on_sampled_tokens_only():
    spread = two_segments().spread(torch.tensor([7.0, 9.0], dtype=torch.float64))
    assert spread.advantages_RT.tolist() == [[9.0, 0.0], [9.0, 9.0], [7.0, 0.0]]


def test_rows_is_the_inverse_of_sampled():
    batch = to_batch(play(5), shuffle=3, padding=2)
    column = torch.randn(batch.response_mask_RT.shape)
    torch.testing.assert_close(batch.rows(batch.sampled(column)), column * batch.response_mask_RT)


def test_a_batch_without_rows_has_no_episodes():
    empty = torch.zeros(0, 4)
    index = torch.zeros(0, dtype=torch.long)
    batch = type(two_segments())(empty, empty.bool(), empty.long(), index, index, index, index.bool())
    assert batch.num_episodes == 0
    assert batch.episode_returns().tolist() == []


def test_a_turn_index_that_falls_or_is_missing_is_refused():
    batch = two_segments()
    for wrong in (torch.tensor([[3, -1], [1, 1], [0, -1]]), torch.tensor([[-1, -1], [1, 1], [0, -1]])):
        with pytest.raises(ValueError, match="turn_index"):
            replace(batch, turn_index_RT=wrong)


def test_an_episode_in_two_groups_is_refused():
    with pytest.raises(ValueError, match="different groups"):
        replace(two_segments(), group_index_R=torch.tensor([1, 2, 2]))


def test_a_segment_given_twice_is_refused():
    with pytest.raises(ValueError, match="twice"):
        replace(two_segments(), segment_index_R=torch.tensor([0, 0, 0]))


def test_a_column_of_another_shape_is_named_with_both_shapes():
    with pytest.raises(ValueError, match=r"values has shape \(3, 5\), response_mask has \(3, 2\)"):
        replace(two_segments(), values_RT=torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"bootstrap has shape \(2,\), the batch has 3 rows"):
        replace(two_segments(), bootstrap_R=torch.zeros(2, dtype=torch.bool))


def test_an_episode_cut_short_without_the_critics_last_value_is_refused():
    batch = replace(two_segments(), bootstrap_R=torch.ones(3, dtype=torch.bool), final_values_R=None)
    with pytest.raises(ValueError, match="final_values"):
        batch.end_values_E()
