"""The critic: the value before each sampled token and after the last, and updates that bring it to the returns."""

import pytest
import torch
from training_cases import critic_worker, distance, in_row, more_padding, parameters, run_config, tokens_of

from openmanus_rl.models.layout import Tokens
from openmanus_rl.workers.critic import CriticWorker


@pytest.mark.parametrize("micro_batch_tokens", [1, 200, 8192])
def test_values_stand_before_their_tokens_and_the_final_one_after_the_last(model_dir, batch, micro_batch_tokens):
    worker = critic_worker(model_dir, micro_batch_tokens=micro_batch_tokens)
    answer = worker.compute_values(batch).batch
    mask = batch.batch["response_mask"]
    assert answer["values"].shape == mask.shape
    assert torch.equal(answer["values"][~mask], torch.zeros_like(answer["values"][~mask]))
    for row in range(len(batch)):
        ids, sampled = tokens_of(batch, row)
        with torch.no_grad():
            after = worker.model(Tokens.of(ids[None]))
        assert torch.allclose(in_row(answer["values"], batch, row), after[:-1][sampled[1:]], atol=1e-5)
        assert float(answer["final_values"][row]) == pytest.approx(float(after[-1]), abs=1e-5)


def test_the_final_value_sees_the_last_observation(model_dir, batch):
    worker = critic_worker(model_dir)
    before = worker.compute_values(batch).batch
    row = 3
    last = int(batch.batch["attention_mask"][row].nonzero()[-1])
    assert not batch.batch["response_mask"][row, last - batch.batch["prompts"].shape[1]], "an observation comes last"
    batch.batch["input_ids"][row, last] += 1
    after = worker.compute_values(batch).batch
    assert float(after["final_values"][row]) != float(before["final_values"][row])
    assert torch.equal(after["values"], before["values"])


def test_values_do_not_depend_on_padding_or_the_order_of_rows(model_dir, batch):
    worker = critic_worker(model_dir)
    expected = worker.compute_values(batch).batch["final_values"]
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert torch.allclose(worker.compute_values(batch[order]).batch["final_values"], expected[order], atol=1e-5)
    assert torch.allclose(worker.compute_values(more_padding(batch)).batch["final_values"], expected, atol=1e-5)


def test_a_new_critic_thinks_everything_worth_nothing(model_dir, batch):
    worker = CriticWorker(str(model_dir), run_config())
    answer = worker.compute_values(batch).batch
    assert not answer["values"].any()
    assert not answer["final_values"].any()


def test_updates_bring_the_values_to_the_returns(model_dir, batch):
    worker = critic_worker(model_dir, lr=3e-3, mini_batches=1, value_clip=10.0)
    mask = batch.batch["response_mask"]

    def update(step):
        batch.batch["values"] = worker.compute_values(batch).batch["values"]
        return worker.update_critic(batch, step).meta_info["metrics"]

    first = update(0)
    for step in range(1, 15):
        last = update(step)
    assert last["critic/vf_loss"] < 0.5 * first["critic/vf_loss"]
    assert last["critic/vf_explained_var"] > first["critic/vf_explained_var"]
    error = (batch.batch["returns"] - batch.batch["values"])[mask]
    explained = 1 - error.var(unbiased=False) / batch.batch["returns"][mask].var(unbiased=False)
    assert last["critic/vf_explained_var"] == pytest.approx(float(explained), abs=1e-5)


def test_the_gradient_is_that_of_half_the_squared_error_over_sampled_tokens(model_dir, batch):
    worker = critic_worker(model_dir, mini_batches=1, value_clip=100.0, grad_clip=1e-9, micro_batch_tokens=150)
    total = torch.zeros(())
    for row in range(len(batch)):
        ids, sampled = tokens_of(batch, row)
        before = worker.model(Tokens.of(ids[None]))[:-1][sampled[1:]]
        total = total + 0.5 * (before - in_row(batch.batch["returns"], batch, row)).square().sum()
    (total / batch.batch["response_mask"].sum()).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in worker.model.parameters()])
    worker.model.zero_grad(set_to_none=True)
    metrics = worker.update_critic(batch, 0).meta_info["metrics"]
    assert metrics["critic/grad_norm"] == pytest.approx(float(expected.norm()), rel=1e-5)
    ours = torch.cat([worker.optimiser.adamw.state[p]["exp_avg"].flatten() for p in worker.model.parameters()])
    assert distance(ours / ours.norm(), expected / expected.norm()) < 1e-5


def test_returns_and_old_values_where_nothing_was_sampled_have_no_effect(model_dir, batch):
    plain = critic_worker(model_dir)
    metrics = plain.update_critic(batch, 0).meta_info["metrics"]
    mask = batch.batch["response_mask"]
    for name in ("returns", "values"):
        batch.batch[name] = torch.where(mask, batch.batch[name], float("nan"))
    disturbed = critic_worker(model_dir)
    assert disturbed.update_critic(batch, 0).meta_info["metrics"] == metrics
    assert torch.equal(parameters(disturbed.model), parameters(plain.model))


def test_micro_batches_change_nothing(model_dir, batch):
    norms = [
        critic_worker(model_dir, mini_batches=1, micro_batch_tokens=tokens)
        .update_critic(batch, 0)
        .meta_info["metrics"]["critic/grad_norm"]
        for tokens in (1, 250, 8192)
    ]
    assert norms[:2] == pytest.approx([norms[2]] * 2, rel=1e-5)


def test_a_value_beyond_the_clip_gets_no_gradient_for_going_on(model_dir, batch):
    worker = critic_worker(model_dir, value_clip=0.01)
    batch.batch["values"] = worker.compute_values(batch).batch["values"] - 1.0
    batch.batch["returns"] = batch.batch["values"] + 2.0
    metrics = worker.update_critic(batch, 0).meta_info["metrics"]
    assert metrics["critic/vf_clipfrac"] == 1.0
    assert metrics["critic/grad_norm"] == 0.0


def test_a_saved_critic_goes_on_exactly_where_it_was(model_dir, batch, tmp_path):
    worker = critic_worker(model_dir)
    worker.update_critic(batch, 1)
    worker.save(tmp_path)
    worker.saving.wait()
    resumed = critic_worker(model_dir)
    resumed.load(tmp_path)
    assert torch.equal(parameters(resumed.model), parameters(worker.model))
    assert worker.update_critic(batch, 2).meta_info == resumed.update_critic(batch, 2).meta_info
    assert torch.equal(parameters(resumed.model), parameters(worker.model))
