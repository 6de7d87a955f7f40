"""An actor with adapters: they are all that changes, is saved and is given to engines."""

import pytest
import torch
from training_cases import reference_worker, run_config

from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.models.lora import read_adapters
from openmanus_rl.workers.actor import ActorWorker


def lora_actor(model_dir, lora=None, **actor):
    config = run_config(model={"lora": {"rank": 4, **(lora or {})}}, actor={"lr": 3e-3, **actor})
    return ActorWorker(str(model_dir), config)


def split_state(model):
    """The frozen weights under the base model's names, and the adapters."""
    state = model.state_dict()
    frozen = {name.replace(".base_layer", ""): t.clone() for name, t in state.items() if ".lora_" not in name}
    return frozen, {name: tensor.clone() for name, tensor in state.items() if ".lora_" in name}


def test_an_update_changes_adapters_only(model_dir, batch):
    worker = lora_actor(model_dir)
    _, before = split_state(worker.model)
    metrics = worker.update_actor(batch, 0).meta_info["metrics"]
    frozen, after = split_state(worker.model)
    base = load_causal_lm(model_dir).state_dict()
    assert frozen.keys() == base.keys()
    assert all(torch.equal(tensor, base[name]) for name, tensor in frozen.items())
    assert all(not torch.equal(tensor, before[name]) for name, tensor in after.items())
    assert metrics["actor/grad_norm"] > 0


def test_what_adapters_drop_in_training_is_no_gap_to_the_engine(model_dir, batch):
    worker = lora_actor(model_dir, {"dropout": 0.5}, mini_batches=1)
    worker.update_actor(batch, 0)  # before it the adapters are 0, and so is what dropout does
    mask = batch.batch["response_mask"]
    batch.batch["rollout_log_probs"] = worker.compute_log_prob(batch).batch["log_probs"]
    metrics = worker.update_actor(batch, 1).meta_info["metrics"]
    assert mask.any()
    assert metrics["rollout/log_prob_gap_max"] < 1e-4


def test_the_reference_is_the_untouched_base_after_any_update(model_dir, batch):
    worker = lora_actor(model_dir)
    expected = reference_worker(model_dir).compute_log_prob(batch).batch
    worker.update_actor(batch, 0)
    found = worker.compute_reference_log_prob(batch).batch
    assert torch.equal(found["log_probs"], expected["log_probs"])
    assert torch.equal(found["entropy"], expected["entropy"])
    own = worker.compute_log_prob(batch).batch["log_probs"]
    assert float((own - expected["log_probs"]).abs().max()) > 1e-3, "the policy itself moved"
    worker.update_actor(batch, 1)
    assert not torch.equal(worker.compute_log_prob(batch).batch["log_probs"], own), "and goes on learning"


def test_a_saved_actor_goes_on_exactly_where_it_was(model_dir, batch, tmp_path):
    worker = lora_actor(model_dir)
    worker.update_actor(batch, 1)
    worker.save(tmp_path)
    worker.saving.wait()
    saved = {path.name for path in (tmp_path / "actor").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= saved
    assert "model.safetensors" not in saved
    resumed = lora_actor(model_dir)
    resumed.load(tmp_path)
    assert worker.update_actor(batch, 2).meta_info == resumed.update_actor(batch, 2).meta_info
    expected, found = worker.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_engines_are_given_the_adapters_by_the_names_that_peft_saves(model_dir, batch, tmp_path):
    worker = lora_actor(model_dir, {"target_modules": ["q_proj", "v_proj"]})
    worker.update_actor(batch, 1)
    worker.save(tmp_path)
    worker.saving.wait()
    weights, saved = worker.weights(), read_adapters(tmp_path / "actor")
    assert weights.keys() == saved.keys()
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in weights
    assert all(torch.equal(tensor, saved[name]) for name, tensor in weights.items())


def test_dropout_disturbs_updates_and_nothing_else(model_dir, batch):
    worker = lora_actor(model_dir, {"dropout": 0.5}, mini_batches=1)
    worker.update_actor(batch, 0)  # from now on the adapters do something
    before = worker.compute_log_prob(batch).batch["log_probs"]
    assert torch.equal(worker.compute_log_prob(batch).batch["log_probs"], before)
    norms = []
    for seed in (1, 2):
        twin = lora_actor(model_dir, {"dropout": 0.5}, mini_batches=1)
        torch.manual_seed(seed)
        norms.append(twin.update_actor(batch, 0).meta_info["metrics"]["actor/grad_norm"])
    assert norms[0] != pytest.approx(norms[1], rel=1e-6)
