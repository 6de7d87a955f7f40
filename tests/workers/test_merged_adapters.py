"""An engine with adapters samples from its weights plus what they add, whatever adapters it had before."""

import asyncio

import pytest
import torch
from training_cases import run_config

from openmanus_rl.errors import UserError
from openmanus_rl.inference.factory import make_engine
from openmanus_rl.workers.actor import ActorWorker

IDS = [5, 9, 3, 20, 17, 4, 8]


@pytest.fixture
def config():
    return run_config(model={"lora": {"rank": 4, "alpha": 12}, "max_context": 512})


@pytest.fixture
def engine(model_dir, config):
    made = make_engine(config, str(model_dir))
    yield made
    asyncio.run(made.close())


def actor_with(model_dir, config, seed):
    """An actor whose adapters are random, so that they change every layer."""
    actor = ActorWorker(str(model_dir), config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in actor.model.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.1)
    return actor


def test_it_scores_as_the_actor_does(model_dir, config, engine):
    before = asyncio.run(engine.score(IDS))
    for seed in range(3):
        actor = actor_with(model_dir, config, seed)
        asyncio.run(engine.update_weights(actor.weights(), seed))
        scores = asyncio.run(engine.score(IDS))
        assert scores == pytest.approx(actor.score(IDS, 1.0), abs=1e-4)
        assert max(abs(a - b) for a, b in zip(scores, before, strict=True)) > 0.1


def test_what_came_before_leaves_no_trace(model_dir, config, engine):
    last = actor_with(model_dir, config, 7).weights()
    asyncio.run(engine.update_weights(last, 1))
    at_once = asyncio.run(engine.score(IDS))
    for seed in range(20):
        asyncio.run(engine.update_weights(actor_with(model_dir, config, seed).weights(), 1))
    asyncio.run(engine.update_weights(last, 2))
    assert asyncio.run(engine.score(IDS)) == at_once


def test_adapters_of_another_model_are_refused(model_dir, config, engine):
    adapters = actor_with(model_dir, config, 0).weights()
    with pytest.raises(UserError, match="not those of this model"):
        asyncio.run(engine.update_weights({name.replace("q_proj", "p_proj"): t for name, t in adapters.items()}, 1))
    asyncio.run(engine.update_weights(adapters, 1))
    fewer = {name: tensor for name, tensor in adapters.items() if "q_proj" not in name}
    with pytest.raises(UserError, match=r"q_proj.weight"):
        asyncio.run(engine.update_weights(fewer, 2))
