"""Half precision, computing again and a state in a file: other numbers of bits and bytes, the same learning."""

import copy
from pathlib import Path

import pytest
import torch
from training_cases import (
    accumulated_gradient,
    actor_worker,
    critic_worker,
    distance,
    parameters,
    run_config,
    take_gradient,
)

from openmanus_rl.workers.actor import ActorWorker
from openmanus_rl.workers.critic import CriticWorker
from openmanus_rl.workers.updates import MetricSums


def saved_bytes(run):
    """What the graph keeps for the backward pass."""
    kept = {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = run()
    return sum(kept.values()), result


def test_layers_that_compute_again_give_the_same_gradient_and_keep_less(model_dir, batch):
    plain, again = (actor_worker(model_dir, gradient_checkpointing=flag) for flag in (False, True))
    plain_bytes, expected = saved_bytes(lambda: accumulated_gradient(plain, batch))
    again_bytes, found = saved_bytes(lambda: accumulated_gradient(again, batch))
    assert torch.equal(found, expected)
    assert again_bytes < 0.6 * plain_bytes


def test_a_critic_computes_again_too(model_dir, batch):
    gradients = []
    for flag in (False, True):
        worker = critic_worker(model_dir, gradient_checkpointing=flag)
        calls = []
        worker.model.trunk.layers[0].self_attn.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        worker._accumulate_gradient(batch, MetricSums())
        gradients.append(take_gradient(worker.model))
        assert len(calls) % 2 == 0 or not flag
    assert torch.equal(*gradients)


def test_what_needs_no_gradient_is_computed_once(model_dir, batch):
    worker = actor_worker(model_dir, gradient_checkpointing=True)
    calls = []
    worker.model.model.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
    worker.compute_log_prob(batch)
    once = len(calls)
    accumulated_gradient(worker, batch)
    assert len(calls) == 3 * once


def test_a_copy_of_a_model_that_computes_again_computes_with_its_own_weights(model_dir, batch):
    """An engine that plays while the actor trains has one."""
    model = actor_worker(model_dir, gradient_checkpointing=True).model
    ids = batch.batch["input_ids"][:1]
    other = copy.deepcopy(model)
    before = other(ids).logits
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    assert torch.equal(other(ids).logits, before)


@pytest.mark.parametrize("make", [actor_worker, critic_worker])
def test_in_bfloat16_weights_gradients_and_state_stay_float32_and_point_the_same_way(model_dir, batch, make):
    gradients = []
    for precision in ("float32", "bfloat16"):
        worker = make(model_dir, precision=precision)
        worker._accumulate_gradient(batch, MetricSums())
        assert {weight.dtype for weight in worker.optimiser.parameters} == {torch.float32}
        assert {weight.grad.dtype for weight in worker.optimiser.parameters} == {torch.float32}
        gradients.append(torch.cat([weight.grad.flatten() for weight in worker.optimiser.parameters]))
        worker.optimiser.step()
        assert {state["exp_avg"].dtype for state in worker.optimiser.adamw.state.values()} == {torch.float32}
    assert 0 < distance(*gradients) < 0.05, "other roundings, the same gradient"


def test_in_bfloat16_matrices_are_multiplied_in_bfloat16_but_a_score_is_exact(model_dir, batch):
    half, full = (actor_worker(model_dir, precision=precision) for precision in ("bfloat16", "float32"))
    seen = []
    half.model.model.layers[0].mlp.up_proj.register_forward_hook(lambda module, inputs, out: seen.append(out.dtype))
    gap = half.compute_log_prob(batch).batch["log_probs"] - full.compute_log_prob(batch).batch["log_probs"]
    assert set(seen) == {torch.bfloat16}
    assert 0 < float(gap.abs().max()) < 0.2
    ids = batch.batch["input_ids"][0].tolist()
    assert half.score(ids, 1.0) == full.score(ids, 1.0)


def mapped_files(directory):
    """Lines of this process's memory map that are files in the directory."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(directory) in line]


@pytest.mark.parametrize("worker_cls", [ActorWorker, CriticWorker])
def test_a_state_in_a_file_takes_the_same_steps_and_is_nowhere_else(model_dir, batch, tmp_path, worker_cls):
    role, update = ("actor", "update_actor") if worker_cls is ActorWorker else ("critic", "update_critic")
    after = []
    for offload in (False, True):
        trainer = {"cache_dir": str(tmp_path / "cache"), "steps": 10}
        worker = worker_cls(str(model_dir), run_config(trainer=trainer, **{role: {"offload_optimiser": offload}}))
        getattr(worker, update)(batch, 0)
        assert bool(mapped_files(tmp_path / "cache")) == offload
        worker.save(tmp_path / str(offload))
        worker.saving.wait()
        getattr(worker, update)(batch, 1)
        after.append(parameters(worker.model))
    states = [state for kinds in worker.optimiser.adamw.state.values() for state in kinds.values() if state.ndim]
    assert states
    assert all(state.untyped_storage().filename is not None for state in states)
    assert list((tmp_path / "cache").iterdir()) == [], "a killed process leaves no file behind"
    assert torch.equal(*after)

    resumed = worker_cls(str(model_dir), run_config(trainer=trainer, **{role: {"offload_optimiser": True}}))
    resumed.load(tmp_path / "False")
    getattr(resumed, update)(batch, 1)
    assert torch.equal(parameters(resumed.model), after[0])
