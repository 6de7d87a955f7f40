"""A critic on the actor's trunk: both heads learn in one pass, and a checkpoint holds both."""

import pytest
import torch
from training_cases import actor_worker, parameters, run_config

from openmanus_rl.models.layout import Tokens
from openmanus_rl.workers.actor_critic import ActorCriticWorker


def actor_critic(model_dir, critic=None, **actor):
    return ActorCriticWorker(str(model_dir), run_config(critic={"trunk": "actor", **(critic or {})}, actor=actor))


def test_a_new_head_says_zero_and_the_policy_is_the_actors(model_dir, batch):
    worker = actor_critic(model_dir)
    assert not worker.compute_values(batch).batch["values"].any()
    expected = actor_worker(model_dir).compute_log_prob(batch).batch["log_probs"]
    assert torch.equal(worker.compute_log_prob(batch).batch["log_probs"], expected)


def test_values_stand_before_their_tokens(model_dir, batch):
    worker = actor_critic(model_dir)
    with torch.no_grad():
        worker.policy.value_head.weight.normal_(generator=torch.Generator().manual_seed(0))
    found = worker.compute_values(batch).batch
    row = 2
    inside = batch.batch["attention_mask"][row].bool()
    ids = batch.batch["input_ids"][row][inside]
    nothing = torch.zeros(0, dtype=torch.long)
    with torch.no_grad():
        after = worker.policy(Tokens.of(ids[None]), nothing, nothing, 1.0)[2]
    mask = batch.batch["response_mask"][row]
    sampled = torch.nn.functional.pad(mask, (batch.batch["prompts"].shape[1], 0))[inside]
    torch.testing.assert_close(found["values"][row][mask], after[:-1][sampled[1:]], rtol=1e-5, atol=1e-5)
    assert float(found["final_values"][row]) == pytest.approx(float(after[-1]), abs=1e-5)


def test_updates_bring_the_values_to_the_returns_and_follow_the_advantages(model_dir, batch):
    worker = actor_critic(model_dir, {"value_clip": 10.0, "coefficient": 1.0}, lr=1e-2, mini_batches=1)
    mask = batch.batch["response_mask"]
    batch.batch["old_log_probs"] = worker.compute_log_prob(batch).batch["log_probs"]
    praised = torch.zeros_like(mask)
    praised[:3] = mask[:3]
    batch.batch["advantages"] = torch.where(praised, 1.0, -1.0) * mask
    batch.batch["returns"] = torch.where(praised, 1.0, -0.5) * mask
    history = []
    for step in range(20):
        batch.batch["values"] = worker.compute_values(batch).batch["values"]
        history.append(worker.update_actor(batch, step).meta_info["metrics"])
    assert history[-1]["critic/vf_loss"] < 0.5 * history[0]["critic/vf_loss"]
    assert history[-1]["critic/vf_explained_var"] > history[0]["critic/vf_explained_var"] + 0.3
    change = worker.compute_log_prob(batch).batch["log_probs"] - batch.batch["old_log_probs"]
    assert float(change[praised].mean()) > 0 > float(change[mask & ~praised].mean())


def test_the_coefficient_weighs_the_critics_loss(model_dir, batch):
    """With advantages of 0 only the critic pulls, and twice the weight pulls twice as much."""
    batch.batch["advantages"].zero_()
    norms = [
        actor_critic(model_dir, {"coefficient": weight}, mini_batches=1)
        .update_actor(batch, 0)
        .meta_info["metrics"]["actor/grad_norm"]
        for weight in (0.5, 1.0)
    ]
    assert norms[1] == pytest.approx(2 * norms[0], rel=1e-4)
    assert norms[0] > 0


def test_a_saved_one_goes_on_exactly_where_it_was(model_dir, batch, tmp_path):
    worker = actor_critic(model_dir, lr=3e-3)
    worker.update_actor(batch, 1)
    worker.save(tmp_path)
    worker.saving.wait()
    resumed = actor_critic(model_dir, lr=3e-3)
    resumed.load(tmp_path)
    assert torch.equal(parameters(resumed.policy), parameters(worker.policy))
    assert worker.policy.value_head.weight.any()
    assert worker.update_actor(batch, 2).meta_info == resumed.update_actor(batch, 2).meta_info
    assert torch.equal(parameters(resumed.policy), parameters(worker.policy))


def test_engines_get_the_policys_weights_only(model_dir):
    assert actor_critic(model_dir).weights().keys() == actor_worker(model_dir).weights().keys()
