"""Episodes of several segments, and horizons that grow, in whole tiny runs."""

import pytest
import torch
from tiny_runs import json_lines

from openmanus_rl.agent.records import read_episodes
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train, episodes_to_rows
from openmanus_rl.algorithms.losses import Denominators, aggregate
from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.trainer.run import train
from openmanus_rl.workers.balance import shares
from openmanus_rl.workers.updates import mini_batches

ONE_STEP = ["trainer.steps=1", "trainer.validate_every=1", "trainer.save_every=1", "agent.max_turns=6"]
WINDOW = ["agent.context.kind=window", "agent.context.turns=1"]
SUMMARY = ["agent.context.kind=summary", "agent.context.turns=2", "agent.context.train_summaries=true"]


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("grpo", [*WINDOW, "algorithm.aggregation=seq-mean-token-mean", "algorithm.drop_zero_variance_groups=false"]),
        ("ppo", [*WINDOW, "algorithm.estimator=gae"]),
        ("ppo", SUMMARY),
    ],
    ids=["window grpo", "window gae", "summary turn_gae"],
)
def test_a_run_with_episodes_of_several_segments_trains(place, preset, words):
    config = place.config(*ONE_STEP, *words, "trainer.name=long", preset=getattr(place, preset))
    run = train(config)
    (_, line) = json_lines(run / "metrics.jsonl")
    assert line["actor/updated"] == 1.0
    assert line["actor/grad_norm"] > 0
    episodes = [one for one in read_episodes(run / "episodes" / "train_step_000001.jsonl") if one.stop_reason.is_sample]
    assert max(len(episode.segments) for episode in episodes) >= 3
    assert line["episode/count"] == len(episodes)
    if "gae" in config.algorithm.estimator:  # the first update starts where the rollout was: nothing has moved yet
        assert abs(line["actor/ppo_kl"]) < 0.5

    rows = episodes_to_rows(episodes, 0)
    assert_only_sampled_tokens_train(rows)
    mask, owner = rows.batch["response_mask"], rows.batch["episode_index"]
    loss = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0))
    whole = Denominators.of(mask, owner, length_norm=64)
    for mode in ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        parts = [torch.tensor(rows_of) for rows_of in shares(rows, 3)]
        apart = sum(aggregate(loss[share], mask[share], mode, whole.select(share)) for share in parts)
        assert torch.allclose(apart, aggregate(loss, mask, mode, whole), atol=1e-5), "ranks may divide an episode"
    for mini in mini_batches(rows, OptimConfig(mini_batches=3), seed=1):
        for episode in mini.batch["episode_index"].unique():
            assert (mini.batch["episode_index"] == episode).sum() == (owner == episode).sum(), "none is divided"


def test_the_horizon_grows_with_the_steps_and_validation_plays_the_longest(place):
    words = ["agent.max_turns={0: 1, 2: 2, 3: 3}", "trainer.steps=3", "trainer.name=growing"]
    run = train(place.config(*words))
    for step in (1, 2, 3):
        episodes = json_lines(run / "episodes" / f"train_step_{step:06d}.jsonl")
        assert max(len(episode["turns"]) for episode in episodes) == step
    validation = json_lines(run / "episodes" / "validation_step_000000.jsonl")
    assert max(len(episode["turns"]) for episode in validation) == 3
