import pytest

from openmanus_rl.algorithms.kl_control import AdaptiveKL, FixedKL


def test_a_fixed_coefficient_stays_and_the_config_wins_over_a_checkpoint():
    controller = FixedKL(0.2)
    controller.update(mean_kl=100.0, episodes=1000)
    controller.load_state_dict(FixedKL(0.7).state_dict())
    assert controller.coefficient == 0.2


def test_the_price_rises_while_the_kl_is_above_target_and_falls_while_below():
    controller = AdaptiveKL(0.2, target=0.1, horizon=1000)
    controller.update(mean_kl=0.11, episodes=100)
    assert controller.coefficient == pytest.approx(0.2 * (1 + 0.1 * 100 / 1000))
    controller.update(mean_kl=0.09, episodes=100)
    assert controller.coefficient == pytest.approx(0.2 * 1.01 * 0.99)


@pytest.mark.parametrize(("mean_kl", "factor"), [(1e9, 1.02), (0.0, 0.98), (-5.0, 0.98)])
def test_one_step_moves_the_price_by_a_bounded_share(mean_kl, factor):
    controller = AdaptiveKL(1.0, target=0.1, horizon=1000)
    controller.update(mean_kl, episodes=100)
    assert controller.coefficient == pytest.approx(factor)


def test_the_price_stays_above_zero_with_more_episodes_than_the_horizon_has():
    controller = AdaptiveKL(1.0, target=0.1, horizon=10)
    controller.update(mean_kl=0.0, episodes=64)
    assert controller.coefficient == pytest.approx(0.8)


def test_a_controller_goes_on_from_its_checkpoint():
    trained = AdaptiveKL(1.0, target=0.1, horizon=1000)
    trained.update(mean_kl=1.0, episodes=100)
    resumed = AdaptiveKL(1.0, target=0.1, horizon=1000)
    resumed.load_state_dict(trained.state_dict())
    assert resumed.coefficient == trained.coefficient


def test_a_broken_kl_is_refused_and_the_price_kept():
    controller = AdaptiveKL(1.0, target=0.1, horizon=1000)
    with pytest.raises(ValueError, match="nan"):
        controller.update(float("nan"), episodes=1)
    assert controller.coefficient == 1.0
