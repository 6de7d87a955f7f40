"""Every estimator and every loss in a real run of one step; that each is right is in tests/algorithms."""

import pytest
from tiny_runs import json_lines, undescribed

from openmanus_rl.trainer.run import train

RUNS = {
    "remax": [
        "algorithm.loss=cispo",
        "actor.proximal=recompute",
        "algorithm.correction.kind=sequence",
        "algorithm.correction.band=1.5",
    ],
    "gigpo": [
        "algorithm.loss=gspo",
        "algorithm.aggregation=seq-mean-token-mean",
        "algorithm.kl.where=loss",
        "algorithm.kl.kind=k3+",
    ],
    "drgrpo": ["algorithm.aggregation=seq-mean-token-sum-norm", "algorithm.loss=reinforce", "rollout.refills=1"],
    "process": ["algorithm.reward_score_fn=agentgym + 0.1*format", "algorithm.reward_allocation=discounted"],
}


@pytest.mark.parametrize("estimator", RUNS)
def test_a_run_with_the_estimator_updates_the_policy(place, estimator):
    short = ["trainer.steps=1", "data.validation_tasks=2", "tracking.tensorboard=false"]
    short += ["rollout.tasks_per_step=8", "rollout.group_size=4"]
    run = train(place.config(*short, f"algorithm.estimator={estimator}", *RUNS[estimator]))
    metrics = json_lines(run / "metrics.jsonl")[-1]
    assert metrics["step"] == 1
    assert metrics["actor/updated"] == 1
    assert metrics["actor/grad_norm"] > 0
    expected = {
        "remax": {"greedy/return", "greedy/success", "actor/correction_weight", "actor/correction_rejected"},
        "gigpo": {"actor/kl_loss", "actor/pg_clipfrac"},
        "drgrpo": {"groups/refilled"},
        "process": {"critic/score/format/mean", "critic/score/agentgym/mean"},
    }
    assert expected[estimator] <= set(metrics)
    assert not undescribed(metrics)
