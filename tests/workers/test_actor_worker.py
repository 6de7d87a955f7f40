"""The actor: its log-probs are the engine's, its loss is on sampled tokens only, and it follows the advantages."""

import pytest
import torch
from training_cases import (
    LENGTH_NORM,
    TEMPERATURE,
    accumulated_gradient,
    actor_worker,
    distance,
    in_row,
    more_padding,
    parameters,
    play_rows,
    reference_worker,
    tokens_of,
)

from openmanus_rl.workers.updates import mini_batches

AGGREGATIONS = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
EVERYTHING = {"kl": {"where": "loss", "coefficient": 0.3}}


def brute_force_gradient(worker, batch, label_seed):
    """PPO's loss (token-mean) from the full logits of each row by itself, with random labels where nothing was sampled.

    The labels are only what is predicted; what stands before stays as it was.
    """
    dice = torch.Generator().manual_seed(label_seed)
    total = torch.zeros(())
    for row in range(len(batch)):
        ids, sampled = tokens_of(batch, row)
        random_labels = torch.randint(0, worker.model.config.vocab_size, ids.shape, generator=dice)
        labels = torch.where(sampled, ids, random_labels)[1:]
        all_log_probs = torch.log_softmax(worker.model(input_ids=ids[None]).logits[0, :-1] / TEMPERATURE, -1)
        log_probs = all_log_probs.gather(-1, labels[:, None])[:, 0]
        old = torch.zeros(len(ids)).masked_scatter(sampled, in_row(batch.batch["old_log_probs"], batch, row))[1:]
        advantages = torch.zeros(len(ids)).masked_scatter(sampled, in_row(batch.batch["advantages"], batch, row))[1:]
        ratio = torch.where(sampled[1:], log_probs - old, torch.zeros(())).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages)
        total = total - (gain * sampled[1:]).sum()
    (total / batch.batch["response_mask"].sum()).backward()
    flat = torch.cat([parameter.grad.flatten() for parameter in worker.model.parameters()])
    worker.model.zero_grad(set_to_none=True)
    return flat


def gap(worker, rows):
    computed = worker.compute_log_prob(rows).batch["log_probs"]
    mask = rows.batch["response_mask"]
    assert torch.equal(computed[~mask], torch.zeros_like(computed[~mask]))
    return float((computed - rows.batch["rollout_log_probs"])[mask].abs().max())


def test_the_gap_of_an_update_is_that_of_its_first_mini_batch_before_the_weights_change(model_dir, batch):
    noise = 0.1 * torch.randn(batch.batch["response_mask"].shape, generator=torch.Generator().manual_seed(1))
    batch.batch["rollout_log_probs"] += noise
    worker = actor_worker(model_dir, mini_batches=2, epochs=2, lr=0.1)
    config = worker.config.actor
    first = next(mini_batches(batch, config, 7))
    mask = first.batch["response_mask"]
    before = worker.compute_log_prob(first).batch["log_probs"]
    expected = (before - first.batch["rollout_log_probs"])[mask].abs()
    metrics = worker.update_actor(batch, 7).meta_info["metrics"]
    assert metrics["rollout/log_prob_gap_mean"] == pytest.approx(float(expected.mean()), rel=1e-4)
    assert metrics["rollout/log_prob_gap_max"] == pytest.approx(float(expected.max()), rel=1e-4)
    engine, trainer = (columns[mask].exp() for columns in (first.batch["rollout_log_probs"], before))
    apart = (engine - trainer).abs()
    for name, value in (("mean", apart.mean()), ("max", apart.max()), ("std", apart.std(unbiased=False))):
        assert metrics[f"training/rollout_probs_diff_{name}"] == pytest.approx(float(value), rel=1e-3)


def test_the_rollouts_of_these_tests_have_several_turns_and_prompts_and_observations(batch):
    assert (batch.batch["turn_index"].max(dim=1).values == 3).all()
    assert (batch.batch["response_mask"].sum(1) < batch.batch["attention_mask"].sum(1) / 2).all()


@pytest.mark.parametrize("micro_batch_tokens", [1, 200, 8192])
def test_log_probs_of_trainer_and_engine_agree(model_dir, batch, micro_batch_tokens):
    assert gap(actor_worker(model_dir, micro_batch_tokens=micro_batch_tokens), batch) <= 1e-4
    assert gap(reference_worker(model_dir, micro_batch_tokens=micro_batch_tokens), batch) <= 1e-4


def test_log_probs_agree_after_an_update_that_the_engine_shares(model_dir, batch):
    worker = actor_worker(model_dir, lr=1e-2)
    worker.update_actor(batch, 0)
    assert gap(worker, batch) > 1e-2, "the update moved the policy"
    assert gap(worker, play_rows(model_dir, worker.model)) <= 1e-4


def test_log_probs_are_those_of_another_temperature_if_another_was_sampled(model_dir, batch):
    assert gap(reference_worker(model_dir, temperature=1.0), batch) > 1e-2


def test_entropy_is_that_of_the_whole_distribution(model_dir, batch):
    worker = actor_worker(model_dir)
    entropy = worker.compute_log_prob(batch).batch["entropy"]
    ids, sampled = tokens_of(batch, 2)
    with torch.no_grad():
        log_probs = torch.log_softmax(worker.model(input_ids=ids[None]).logits[0, :-1] / TEMPERATURE, -1)
    expected = -(log_probs.exp() * log_probs).sum(-1)[sampled[1:]]
    assert torch.allclose(in_row(entropy, batch, 2), expected, atol=1e-5)


def test_the_gradient_is_that_of_the_full_logits_whatever_unsampled_tokens_are_as_labels(model_dir, batch):
    worker = actor_worker(model_dir, micro_batch_tokens=200)
    ours = accumulated_gradient(worker, batch)
    one, other = (brute_force_gradient(worker, batch, label_seed) for label_seed in (1, 2))
    assert torch.equal(one, other)
    assert float(ours.norm()) > 1e-3
    assert distance(ours, one) < 1e-6


def test_no_gradient_reaches_a_prediction_of_a_prompt_or_observation_token(model_dir, batch):
    """The gradient of the loss by every row's hidden states: only at those that predict a sampled token."""
    worker = actor_worker(model_dir, EVERYTHING, micro_batch_tokens=1, entropy_coefficient=0.1)
    predicted = []
    head = worker.model.get_output_embeddings()
    head.register_forward_hook(lambda module, inputs, logits: predicted.append(len(inputs[0])))
    accumulated_gradient(worker, batch)
    assert sorted(predicted) == sorted(batch.batch["response_mask"].sum(1).tolist())


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_micro_batches_row_order_and_padding_change_nothing(model_dir, batch, aggregation):
    algorithm = {**EVERYTHING, "aggregation": aggregation}
    whole = accumulated_gradient(actor_worker(model_dir, algorithm, entropy_coefficient=0.1), batch)
    for rows, tokens in (
        (batch, 1),
        (batch, 250),
        (batch[torch.tensor([4, 1, 5, 0, 3, 2])], 250),
        (more_padding(batch), 8192),
    ):
        worker = actor_worker(model_dir, algorithm, entropy_coefficient=0.1, micro_batch_tokens=tokens)
        assert distance(accumulated_gradient(worker, rows), whole) < 2e-6


def test_an_episodes_mean_is_over_all_its_segments(model_dir, batch):
    """With seq-mean-token-mean each of the five episodes weighs a fifth, not each of the six rows a sixth."""
    batch.batch["old_log_probs"] = batch.batch["rollout_log_probs"].clone()
    batch.batch["advantages"] = batch.batch["response_mask"].float()
    worker = actor_worker(model_dir, {"aggregation": "seq-mean-token-mean"})
    ours = accumulated_gradient(worker, batch)
    total = torch.zeros(())
    counts = batch.batch["response_mask"].sum(1)
    for row in range(6):
        ids, sampled = tokens_of(batch, row)
        log_probs = torch.log_softmax(worker.model(input_ids=ids[None]).logits[0, :-1] / TEMPERATURE, -1)
        taken = log_probs.gather(-1, ids[1:, None])[:, 0][sampled[1:]]
        in_episode = counts[0] + counts[1] if row < 2 else counts[row]
        ratio = (taken - in_row(batch.batch["old_log_probs"], batch, row)).exp()
        total = total - ratio.sum() / in_episode / 5
    total.backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in worker.model.parameters()])
    assert distance(ours, expected) < 1e-5


def test_the_constant_of_sum_norm_is_the_workers(model_dir, batch):
    summed = accumulated_gradient(actor_worker(model_dir, {"aggregation": "seq-mean-token-sum"}), batch)
    normed = accumulated_gradient(actor_worker(model_dir, {"aggregation": "seq-mean-token-sum-norm"}), batch)
    assert distance(normed * LENGTH_NORM, summed) < 1e-5


def test_an_update_makes_praised_tokens_likelier_and_blamed_ones_rarer(model_dir, batch):
    batch.batch["old_log_probs"] = batch.batch["rollout_log_probs"].clone()
    mask = batch.batch["response_mask"]
    praised = torch.zeros_like(mask)
    praised[:3] = mask[:3]
    batch.batch["advantages"] = torch.where(praised, 1.0, -1.0) * mask
    worker = actor_worker(model_dir, lr=1e-4, mini_batches=1)
    before = worker.compute_log_prob(batch).batch["log_probs"]
    metrics = worker.update_actor(batch, 0).meta_info["metrics"]
    change = worker.compute_log_prob(batch).batch["log_probs"] - before
    assert float(change[praised].mean()) > 1e-4
    assert float(change[mask & ~praised].mean()) < -1e-4
    assert metrics["actor/grad_norm"] > 0
    assert metrics["actor/entropy"] > 0


def test_a_token_beyond_the_clip_has_no_gradient_and_is_counted(model_dir, batch):
    mask = batch.batch["response_mask"]
    batch.batch["advantages"] = mask.float()
    batch.batch["old_log_probs"] = batch.batch["rollout_log_probs"] - 0.3 * mask
    worker = actor_worker(model_dir)
    before = parameters(worker.model)
    metrics = worker.update_actor(batch, 0).meta_info["metrics"]
    assert metrics["actor/pg_clipfrac"] == 1.0
    assert metrics["actor/grad_norm"] == 0.0
    assert torch.equal(parameters(worker.model), before)
    batch.batch["advantages"] = -mask.float()
    metrics = worker.update_actor(batch, 0).meta_info["metrics"]
    assert metrics["actor/pg_clipfrac"] == 0.0
    assert metrics["actor/grad_norm"] > 0


def test_the_clip_is_the_configs(model_dir, batch):
    mask = batch.batch["response_mask"]
    batch.batch["advantages"] = mask.float()
    batch.batch["old_log_probs"] = batch.batch["rollout_log_probs"] - 0.3 * mask
    wide = actor_worker(model_dir, {"loss_options": {"clip_high": 0.5}})
    assert wide.update_actor(batch, 0).meta_info["metrics"]["actor/pg_clipfrac"] < 0.5


def test_kl_in_the_loss_pulls_towards_the_reference(model_dir, batch):
    worker = actor_worker(model_dir, {"kl": {"where": "loss", "coefficient": 1.0}}, lr=2e-3, mini_batches=1)
    batch.batch["advantages"].zero_()
    batch.batch["ref_log_prob"] = reference_worker(model_dir).compute_log_prob(batch).batch["log_probs"]
    with torch.no_grad():
        for parameter in worker.model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    distances = [worker.update_actor(batch, step).meta_info["metrics"]["actor/kl_loss"] for step in range(8)]
    assert distances[0] > 0.01
    assert distances[-1] < 0.5 * distances[0]


def test_without_kl_and_advantages_nothing_moves(model_dir, batch):
    worker = actor_worker(model_dir)
    batch.batch["advantages"].zero_()
    before = parameters(worker.model)
    metrics = worker.update_actor(batch, 0).meta_info["metrics"]
    assert torch.equal(parameters(worker.model), before)
    assert "actor/kl_loss" not in metrics


def test_an_entropy_bonus_raises_the_entropy(model_dir, batch):
    worker = actor_worker(model_dir, entropy_coefficient=1.0, lr=1e-3, mini_batches=1)
    batch.batch["advantages"].zero_()
    entropies = [worker.update_actor(batch, step).meta_info["metrics"]["actor/entropy"] for step in range(5)]
    assert entropies == sorted(entropies)
    assert entropies[-1] > entropies[0] + 0.05


def test_metrics_are_means_over_the_tokens_however_they_are_batched(model_dir, batch):
    one, many = (
        actor_worker(model_dir, EVERYTHING, mini_batches=1, micro_batch_tokens=tokens)
        .update_actor(batch, 0)
        .meta_info["metrics"]
        for tokens in (8192, 100)
    )
    assert one.keys() == many.keys()
    assert one.pop("perf/token_reuse") > 0, "which is about how they are batched"
    for name, value in one.items():
        assert many[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def test_a_saved_actor_goes_on_exactly_where_it_was(model_dir, batch, tmp_path):
    config = {"lr": 3e-3, "warmup_steps": 2, "final_lr_ratio": 0.1, "epochs": 2}
    worker = actor_worker(model_dir, **config)
    worker.update_actor(batch, 1)
    worker.save(tmp_path)
    worker.saving.wait()

    resumed = actor_worker(model_dir, **config)
    shared_with_the_engine = resumed.model.get_output_embeddings().weight
    resumed.load(tmp_path)
    assert resumed.model.get_output_embeddings().weight is shared_with_the_engine
    assert torch.equal(parameters(resumed.model), parameters(worker.model))
    first, second = worker.update_actor(batch, 2).meta_info, resumed.update_actor(batch, 2).meta_info
    assert first == second
    assert torch.equal(parameters(resumed.model), parameters(worker.model))

    amnesiac = actor_worker(tmp_path / "actor", **config)
    amnesiac.update_actor(batch, 2)
    assert not torch.equal(parameters(amnesiac.model), parameters(worker.model)), "the optimiser's state matters"


def test_the_seed_decides_the_mini_batches(model_dir, batch):
    after = []
    for seed in (1, 1, 2):
        worker = actor_worker(model_dir, mini_batches=3)
        worker.update_actor(batch, seed)
        after.append(parameters(worker.model))
    assert torch.equal(after[0], after[1])
    assert not torch.equal(after[0], after[2])


def test_a_score_is_the_log_prob_of_each_token_but_the_first(model_dir, batch):
    worker = actor_worker(model_dir)
    ids, _ = tokens_of(batch, 1)
    with torch.no_grad():
        log_probs = torch.log_softmax(worker.model(input_ids=ids[None]).logits[0, :-1] / 0.5, -1)
    expected = log_probs.gather(-1, ids[1:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(worker.score(ids.tolist(), 0.5)), expected, atol=1e-5, rtol=0)


def test_weights_are_the_models_own_tensors_under_their_hugging_face_names(model_dir):
    worker = actor_worker(model_dir)
    weights = worker.weights()
    state = worker.model.state_dict()
    assert weights.keys() == state.keys()
    assert all(weights[name].data_ptr() == tensor.data_ptr() for name, tensor in state.items())
    assert worker.parameter_count() == parameters(worker.model).numel()


def test_an_actor_whose_weights_all_change_is_no_reference(model_dir, batch):
    with pytest.raises(ValueError, match="without adapters"):
        actor_worker(model_dir).compute_reference_log_prob(batch)
