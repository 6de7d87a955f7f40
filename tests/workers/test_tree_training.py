"""Rows that begin alike are computed together, and learnt from as if each had been computed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import actor_worker, distance, run_config

from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker, ReferenceWorker
from openmanus_rl.workers.actor_critic import ActorCriticWorker
from openmanus_rl.workers.critic import CriticWorker
from openmanus_rl.workers.updates import MetricSums

ALGORITHM = {"kl": {"where": "loss", "coefficient": 0.3}, "aggregation": "seq-mean-token-mean"}
LAYOUTS = ["tree", "packed", "auto"]


@st.composite
def forests(draw):
    """Rows that branch off each other anywhere, cut into prompt and response anywhere, with any tokens sampled."""
    rows = [draw(st.lists(st.integers(5, 9), min_size=2, max_size=20))]
    for _ in range(draw(st.integers(0, 7))):
        stem = draw(st.sampled_from(rows))
        kept = draw(st.integers(0, len(stem)))
        rows.append([*stem[:kept], *draw(st.lists(st.integers(5, 9), min_size=max(0, 2 - kept), max_size=20))])
    prompts = [draw(st.integers(1, len(row) - 1)) for row in rows]
    return as_batch(rows, prompts, draw(st.integers(0, 1000)))


def as_batch(rows, prompts, seed):
    """Rows of tokens with the columns of an update, of which about half the tokens after the prompt are sampled."""
    dice = torch.Generator().manual_seed(seed)
    width = max(prompts)
    length = width + max(len(row) - prompt for row, prompt in zip(rows, prompts, strict=True))
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    attention = torch.zeros_like(ids)
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        ids[number, width - prompt : width - prompt + len(row)] = torch.tensor(row)
        attention[number, width - prompt : width - prompt + len(row)] = 1
    mask = attention[:, width:].bool() & (torch.rand(len(rows), length - width, generator=dice) < 0.6)
    mask[0, 0] = True
    columns = {
        "prompts": ids[:, :width],
        "responses": ids[:, width:],
        "input_ids": ids,
        "attention_mask": attention,
        "response_mask": mask,
        "episode_index": torch.arange(len(rows)) // 2,
        "group_index": torch.zeros(len(rows), dtype=torch.long),
    }
    for name in ("old_log_probs", "rollout_log_probs", "ref_log_prob", "advantages", "values", "returns"):
        columns[name] = torch.randn(mask.shape, generator=dice)
    columns["old_log_probs"] -= 5.0
    columns["ref_log_prob"] -= 5.0
    return DataProto.from_dict(columns)


def shake(module):
    """Weights that have learnt something: heads and adapters start at zero."""
    dice = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "head" in name or "lora_" in name:
                weight.add_(0.2 * torch.randn(weight.shape, generator=dice))


def worker(kind, model_dir, layout, budget):
    options = {"layout": layout, "micro_batch_tokens": budget}
    actor, critic = {"entropy_coefficient": 0.1, **options}, {**options}
    lora = {"rank": 3} if kind == "adapters" else {}
    config = run_config(algorithm=ALGORITHM, actor=actor, critic=critic, model={"lora": lora})
    made = {"critic": CriticWorker, "actor and critic": ActorCriticWorker, "reference": ReferenceWorker}.get(
        kind, ActorWorker
    )(str(model_dir), config)
    shake(made.model if kind == "critic" else made.policy)
    return made


@pytest.fixture(scope="module")
def workers(model_dir):
    """Made once: a worker of each kind for each layout, and one that computes each row alone."""
    made = {}

    def get(kind, layout, budget):
        key = (kind, layout, budget)
        if key not in made:
            made[key] = worker(kind, model_dir, layout, budget)
        return made[key]

    return get


def gradient(learner, batch):
    learner._accumulate_gradient(batch, MetricSums())
    weights = learner.optimiser.weights.values()
    flat = torch.cat([torch.zeros_like(w).flatten() if w.grad is None else w.grad.flatten() for w in weights])
    learner.optimiser.adamw.zero_grad(set_to_none=True)
    return flat


@pytest.mark.parametrize("kind", ["actor", "adapters", "critic", "actor and critic"])
@settings(max_examples=8, deadline=None)
@given(batch=forests(), layout=st.sampled_from(LAYOUTS), budget=st.sampled_from([30, 8192]))
def test_gradients_are_those_of_every_row_alone(workers, kind, batch, layout, budget):
    alone = gradient(workers(kind, "sorted", 1), batch)
    together = gradient(workers(kind, layout, budget), batch)
    assert float(alone.norm()) > 1e-6
    assert distance(together, alone) < 1e-5


@settings(max_examples=8, deadline=None)
@given(batch=forests(), layout=st.sampled_from(LAYOUTS), budget=st.sampled_from([30, 8192]))
def test_log_probs_entropies_and_values_are_those_of_every_row_alone(workers, batch, layout, budget):
    calls = {
        "actor": "compute_log_prob",
        "reference": "compute_log_prob",
        "adapters": "compute_reference_log_prob",
        "critic": "compute_values",
        "actor and critic": "compute_values",
    }
    for kind, method in calls.items():
        alone, together = (
            getattr(workers(kind, *how), method)(batch).batch for how in (("sorted", 1), (layout, budget))
        )
        for name in alone.keys():  # noqa: SIM118 - a TensorDict iterates over rows
            torch.testing.assert_close(together[name], alone[name], rtol=1e-5, atol=2e-5)


def group(prompt=40, own=10, size=8):
    dice = np.random.default_rng(0)
    beginning = dice.integers(5, 60, prompt).tolist()
    rows = [[*beginning, 5 + row, *dice.integers(5, 60, own - 1).tolist()] for row in range(size)]
    return as_batch(rows, [prompt] * size, seed=0)


def test_a_groups_prompt_is_computed_once_and_the_metric_says_so(model_dir):
    batch = group()
    reuse = {}
    for layout in ("tree", "auto", "packed"):
        learner = actor_worker(model_dir, layout=layout, mini_batches=1)
        reuse[layout] = learner.update_actor(batch, 0).meta_info["metrics"]["perf/token_reuse"]
    assert reuse["tree"] == reuse["auto"] == pytest.approx(8 * 50 / (40 + 8 * 10))
    assert reuse["packed"] == 1.0


def test_the_decoder_sees_each_shared_token_once(model_dir):
    learner = worker("actor", model_dir, "tree", 8192)
    seen = []
    learner.model.get_decoder().register_forward_pre_hook(
        lambda module, arguments, named: seen.append(named["input_ids"].numel()), with_kwargs=True
    )
    learner.compute_log_prob(group())
    assert seen == [40 + 8 * 10]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_deterministic_algorithms_give_the_same_bits_again(model_dir, layout):
    batch = group()
    torch.use_deterministic_algorithms(True)
    try:
        one, other = (gradient(worker("actor", model_dir, layout, 100), batch) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(one, other)
