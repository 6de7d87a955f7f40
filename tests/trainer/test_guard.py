"""The guard on made-up runs: it is quiet on noise and drift, and tells a collapse by its cause."""

import random

import pytest

from openmanus_rl.config.schema import GuardConfig
from openmanus_rl.trainer.guard import Guard

STEPS = 200


def healthy(step, chance):
    """A run that learns: noisy, with entropy that falls and success that rises."""
    progress = step / STEPS
    return {
        "actor/ppo_kl": 0.004 + 0.003 * chance.random(),
        "actor/grad_norm": 0.5 * 2 ** chance.gauss(0, 0.5),
        "actor/entropy": 1.2 - progress + 0.05 * chance.gauss(0, 1),
        "episode/invalid_actions": max(0.0, 0.05 * (1 - progress) + 0.02 * chance.gauss(0, 1)),
        "critic/score/std": 0.4 + 0.05 * chance.gauss(0, 1),
        "success/rate": min(1.0, 0.3 + 0.6 * progress + 0.05 * chance.gauss(0, 1)),
    }


def collapses(changes, guard=None, steps=60, since=40):
    """Where the guard tells a collapse of a run whose metrics are changed from step `since` on."""
    guard, chance, found = guard or Guard(GuardConfig()), random.Random(0), []
    for step in range(1, steps + 1):
        metrics = healthy(step, chance) | (changes(step - since) if step >= since else {})
        if (collapse := guard.observe(step, metrics)) is not None:
            found.append(collapse)
    return found


def test_noise_and_drift_are_no_collapse():
    for seed in range(20):
        guard, chance = Guard(GuardConfig()), random.Random(seed)
        assert not any(guard.observe(step, healthy(step, chance)) for step in range(1, STEPS + 1)), seed


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"actor/ppo_kl": 0.2}, "updates are too large"),
        ({"actor/entropy": 0.02}, "entropy has left its course"),
        ({"actor/entropy": 5.0}, "entropy has left its course"),
        ({"episode/invalid_actions": 0.6}, "lost the form of actions"),
        ({"rollout/log_prob_gap_mean": 0.5}, "no longer agree on log-probs"),
        ({"success/rate": 0.0}, "success on training tasks has fallen"),
        ({"actor/grad_norm": 90.0, "success/rate": 0.05}, "gradient has exploded"),
        ({"critic/score/std": 0.0, "actor/grad_norm": 90.0, "success/rate": 0.1}, "gradient has exploded"),
        ({"actor/ppo_kl": 0.2, "actor/entropy": 4.0, "success/rate": 0.0}, "updates are too large"),
    ],
)
def test_a_collapse_is_told_once_after_patience_and_by_its_first_cause(changes, cause):
    if "rollout/log_prob_gap_mean" in changes:
        guard, chance = Guard(GuardConfig()), random.Random(0)
        found = [
            guard.observe(step, healthy(step, chance) | {"rollout/log_prob_gap_mean": 1e-5 if step < 40 else 0.5})
            for step in range(1, 61)
        ]
        (collapse,) = [entry for entry in found if entry]
    else:
        (collapse,) = collapses(lambda since: changes)
    assert collapse.step == 41, "the second step outside"
    assert cause in collapse.cause


def test_a_spike_of_one_step_is_no_collapse():
    assert collapses(lambda since: {"actor/ppo_kl": 0.3, "actor/grad_norm": 80.0} if since == 0 else {}) == []


@pytest.mark.parametrize("value", [0.9, float("nan"), float("inf")])
def test_an_update_beyond_all_measure_is_a_collapse_at_the_first_step(value):
    (collapse,) = collapses(lambda since: {"actor/ppo_kl": value}, since=1, steps=3)
    assert collapse.step == 1
    assert "updates are too large" in collapse.cause


def test_equal_scores_are_no_alarm_where_all_succeed():
    solved = {"critic/score/std": 0.0, "success/rate": 1.0, "actor/grad_norm": 90.0}
    assert collapses(lambda since: solved) == []


def test_off_watches_nothing():
    guard = Guard(GuardConfig(action="off"))
    assert collapses(lambda since: {"actor/ppo_kl": float("nan")}, guard) == []


def test_a_guard_that_goes_on_from_a_checkpoint_decides_as_the_one_that_was_saved():
    def bad(step):
        return {"actor/entropy": 0.01} if step >= 30 else {}

    whole, halves = random.Random(3), random.Random(3)
    one, other = Guard(GuardConfig()), Guard(GuardConfig())
    for step in range(1, 36):
        expected = one.observe(step, healthy(step, whole) | bad(step))
        resumed = Guard(GuardConfig())
        resumed.load_state_dict(other.state_dict())
        other = resumed
        assert other.observe(step, healthy(step, halves) | bad(step)) == expected
