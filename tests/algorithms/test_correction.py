"""Off-policy correction: weights by the ratio of two policies, capped, by token or by episode."""

import math

import pytest
import torch

from openmanus_rl.algorithms.correction import off_policy_correction

BEHAVIOUR = torch.tensor([[-1.0, -1.0, 9.0], [-1.0, -2.0, -1.0]])
PROXIMAL = torch.tensor([[-1.5, 0.5, 0.0], [-1.0, -2.0, -1.2]])
MASK = torch.tensor([[True, True, False], [True, True, True]])
APART, TOGETHER = torch.tensor([0, 1]), torch.tensor([4, 4])


def weights(kind: str, cap: float = 100.0, band: float | None = None, episodes=APART) -> torch.Tensor:
    return off_policy_correction(BEHAVIOUR, PROXIMAL, MASK, episodes, kind, cap, band).weights_RT


def test_a_tokens_weight_is_its_own_ratio_and_zero_where_nothing_was_sampled():
    expected = [[math.exp(-0.5), math.exp(1.5), 0.0], [1.0, 1.0, math.exp(-0.2)]]
    torch.testing.assert_close(weights("token"), torch.tensor(expected))


def test_an_episodes_weight_is_the_ratio_of_all_its_tokens_over_all_its_rows():
    torch.testing.assert_close(weights("sequence")[:, 0], torch.tensor([math.exp(1.0), math.exp(-0.2)]))
    torch.testing.assert_close(weights("sequence", episodes=TOGETHER)[:, 0], torch.full((2,), math.exp(0.8)))


def test_no_weight_is_above_the_cap_and_the_metrics_say_how_many_were():
    found = off_policy_correction(BEHAVIOUR, PROXIMAL, MASK, APART, "token", 2.0, None)
    assert found.weights_RT.max() == 2.0
    assert found.metrics["actor/correction_capped"] == pytest.approx(1 / 5)
    assert found.metrics["actor/correction_weight"] == pytest.approx(float(found.weights_RT.sum()) / 5)


def test_an_episode_outside_the_band_is_left_out_whole_and_one_inside_is_as_it_was():
    # Mean log-ratios a token: 0.5 and -0.2 / 3.
    assert weights("none", band=1.2).tolist() == [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    assert weights("none", band=1.7).tolist() == MASK.float().tolist()
    found = off_policy_correction(BEHAVIOUR, PROXIMAL, MASK, APART, "none", 2.0, 1.2)
    assert found.kept_R.tolist() == [False, True]
    assert found.metrics["actor/correction_rejected"] == 0.5
    assert found.metrics["actor/correction_weight"] == 1.0, "a mean over what is kept"


@pytest.mark.parametrize("kind", ["token", "sequence"])
def test_the_weighted_mean_under_the_behaviour_policy_is_the_mean_under_the_proximal_one(kind):
    """Exactly, over all pairs of tokens that a policy of three words can say."""
    behaviour, proximal = (torch.tensor(p, dtype=torch.float64) for p in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]))
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    value = torch.tensor([1.0, -2.0, 5.0], dtype=torch.float64)[pairs[:, 0]]
    chances = behaviour[pairs].prod(-1)
    found = off_policy_correction(
        behaviour.log()[pairs],
        proximal.log()[pairs],
        torch.ones(9, 2, dtype=torch.bool),
        torch.arange(9),
        kind,
        1e9,
        None,
    ).weights_RT
    torch.testing.assert_close((chances * found[:, 0] * value).sum(), (proximal[pairs].prod(-1) * value).sum())


def test_equal_policies_change_nothing_and_an_empty_batch_is_no_trouble():
    same = off_policy_correction(BEHAVIOUR, BEHAVIOUR, MASK, APART, "sequence", 2.0, 1.1)
    assert torch.equal(same.weights_RT, MASK.float())
    none = torch.zeros(0, 3)
    assert off_policy_correction(none, none, none.bool(), torch.zeros(0), "token", 2.0, 1.1).weights_RT.shape == (0, 3)
