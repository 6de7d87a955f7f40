"""`openmanus-rl plan`: its arithmetic against real models and engines, and what it refuses."""

import asyncio
import dataclasses

import pytest
from tiny_runs import TinyPlace

from openmanus_rl.cli.plan import report
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import SamplingParams
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.models.lora import add_adapters
from openmanus_rl.trainer.calibration import value_at
from openmanus_rl.trainer.footprint import Usage, model_size, processes
from openmanus_rl.trainer.plan import make_plan

HUGE = ["model.tiny.hidden_size=16384", "model.tiny.heads=128", "model.tiny.layers=80"]


@pytest.fixture(scope="module")
def planned(shared_place, tmp_path_factory):
    """A plan of the tiny run, and what was said while it was made."""
    said: list[str] = []
    config = TinyPlace(shared_place, tmp_path_factory.mktemp("planned")).config()
    return make_plan(config, said.append), said


def parts(config, size, **usage):
    return {process.name: process for process in processes(config, size, set(), Usage(**usage))}


def test_the_size_of_a_model_is_known_without_its_weights(place, grpo_run):
    directory = str(grpo_run / "initial_model")
    model = load_causal_lm(directory)
    size = model_size(place.config(), directory)
    assert size.parameters == size.trained == sum(weight.numel() for weight in model.parameters())
    config = place.config("model.lora.rank=4")
    add_adapters(model, config.model.lora, seed=0)
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert model_size(config, directory).trained == trained


def test_keys_and_values_take_what_an_engine_takes(place, grpo_run):
    directory = str(grpo_run / "initial_model")
    config = place.config("rollout.concurrency=20", "rollout.tasks_per_step=10", "data.validation_tasks=1")
    engine = EmbeddedEngine(load_causal_lm(directory), max_sessions=20, max_context=config.model.max_context)

    async def play() -> None:
        prompts = ([1 + index] * 150 for index in range(20))
        await asyncio.gather(
            *(engine.generate(ids, SamplingParams(8), seed=0, session=str(index)) for index, ids in enumerate(prompts))
        )

    asyncio.run(play())
    held = sum(store.nbytes for pair in engine._scheduler._cache._stores for store in pair)
    asyncio.run(engine.close())
    assert parts(config, model_size(config, directory), longest=158)["trainer"].parts["KV cache"] == held


def test_what_each_process_holds_follows_from_the_roles_that_live_in_it(place, grpo_run):
    size = model_size(place.config(), str(grpo_run / "initial_model"))
    weights = 4 * size.parameters
    here = parts(place.config("algorithm.kl.where=loss"), size, activations=1000.0)["trainer"].parts
    assert (here["weights"], here["gradients"], here["optimizer"]) == (2 * weights, weights, 2 * weights)
    assert "engine copy" not in here
    assert parts(place.config("actor.offload_optimiser=true"), size)["trainer"].parts["optimizer"] == 0
    ahead = ["rollout.ahead=1", "actor.proximal=recompute", "algorithm.correction.kind=token"]
    assert parts(place.config(*ahead), size)["trainer"].parts["engine copy"] == weights
    adapted = parts(place.config("model.lora.rank=4"), size)["trainer"].parts
    assert adapted["engine copy"] == 2 * weights, "as they are, and with the adapters merged"
    vllm = parts(place.config("rollout.engine=vllm", "rollout.vllm.dtype=bfloat16"), size)["vLLM"].parts
    assert vllm == {"weights": weights / 2, "KV cache": 2**30}
    pools = ["cluster.pools.main.ranks_per_node=2", "cluster.pools.sampling.ranks_per_node=1"]
    on_ray = parts(place.config("trainer.executor=ray", *pools, "cluster.roles.rollout=sampling"), size)
    assert (on_ray["pool main"].count, on_ray["pool main"].parts["optimizer"]) == (2, weights)
    assert on_ray["pool sampling"].parts["engine copy"] == weights
    assert on_ray["pool sampling"].parts["gradients"] == 0


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(2, 3.0), (4, 4.0), (8, 6.0)], 10.0),
        ([(4, 4.0), (16, 9.0), (16, 11.0)], 10.0),
        ([(2, 1.0)], 8.0),
        ([(2, 5.0), (4, 4.0)], 4.0),
    ],
    ids=["on a line", "measured twice", "one size", "a larger size was quicker"],
)
def test_what_was_not_tried_lies_on_the_line_through_the_last_two_sizes(points, expected):
    assert value_at(16, points) == pytest.approx(expected)


def test_a_plan_tells_memory_by_process_and_time_by_part(planned):
    plan, said = planned
    assert said[-1].startswith("8 episodes: a step of ")
    text = "\n".join(report(plan))
    assert "trainer " in text
    assert "environment server " in text
    for column in (
        "weights",
        "gradients",
        "optimizer",
        "KV cache",
        "activations",
        "rollout",
        "credit",
        "update",
        "sync",
    ):
        assert column in text
    assert 0 < plan.parts_of_a_step["update"] < plan.step_seconds
    assert sum(plan.parts_of_a_step.values()) == pytest.approx(plan.step_seconds)
    assert plan.calibration.share == 1
    assert plan.run_seconds == pytest.approx(3 * plan.step_seconds + 3 * plan.calibration.validation_seconds)
    plan.check()


def test_what_does_not_fit_is_refused_with_its_largest_part_and_what_to_lower(planned):
    plan, _ = planned
    with pytest.raises(UserError, match=r"it takes .* GB, and 0\.0 GB are free.*: program\.\n.*fewer processes"):
        dataclasses.replace(plan, available=1e7).check()


def test_a_model_that_cannot_fit_is_refused_before_anything_is_made(cli, place):
    result = cli("plan", str(place.grpo), *place.words(*HUGE, f"data.dir={place.runs / 'none'}"))
    assert result.code == 2
    assert "openmanus-rl: error: this does not fit" in result.err
    assert "optimizer" in result.err
    assert "model.lora.rank" in result.err
    assert not (place.runs / "none").exists()
