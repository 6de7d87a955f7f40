"""A model behind an OpenAI-compatible endpoint is measured as one of ours is, and its successes can be fine-tuned on."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "envs"))

from live_service import live_app

from openmanus_rl.agent.gateway import Gateway
from openmanus_rl.agent.records import read_episodes
from openmanus_rl.agent.rows import episodes_to_rows
from openmanus_rl.data.demonstrations import read_demonstrations
from openmanus_rl.errors import UserError
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.load import load_causal_lm, load_tokenizer
from openmanus_rl.trainer.run import train
from openmanus_rl.trainer.standalone import evaluate_endpoint, evaluate_model

GREEDY = "rollout.validation_temperature=0"


@pytest.fixture(scope="module")
def served(grpo_run):
    """The URL of an endpoint with the model of a finished run behind it."""
    model_dir = grpo_run / "checkpoints" / "step_000003" / "actor"
    engine = EmbeddedEngine(load_causal_lm(model_dir), max_context=512)
    renderer = ChatRenderer(load_tokenizer(model_dir))
    gateway = Gateway(engine, renderer, model="mine", max_context=512, max_tokens=12)
    with live_app(gateway.app) as url:
        yield f"{url}/v1"
    asyncio.run(engine.close())


def endpoint_config(place, url, *more):
    words = ("rollout.engine=endpoint", f"rollout.endpoint.url={url}", "rollout.endpoint.model=mine")
    return place.config(*words, *more)


def test_greedily_it_plays_the_very_episodes_that_the_model_plays_without_an_endpoint(
    place, grpo_run, served, tmp_path
):
    there = evaluate_endpoint(
        endpoint_config(place, served, GREEDY), "validation", 12, tmp_path / "there", tmp_path / "good.parquet"
    )
    here = evaluate_model(place.config(GREEDY), str(grpo_run), "validation", 12, tmp_path / "here")
    assert there.success == here.success
    assert there.metrics["endpoint/tokens"] > 0
    theirs, ours = (read_episodes(tmp_path / name / "validation_step_000000.jsonl") for name in ("there", "here"))
    for one, other in zip(theirs, ours, strict=True):
        assert [turn.text for turn in one.turns] == [turn.text for turn in other.turns]
        assert [turn.reward for turn in one.turns] == [turn.reward for turn in other.turns]
    with pytest.raises(UserError, match="text, no tokens"):
        episodes_to_rows(theirs, pad_token_id=0)
    solved = [episode for episode in theirs if episode.success]
    demonstrations = read_demonstrations(tmp_path / "good.parquet")
    assert [demonstration.item_id for demonstration in demonstrations] == [one.task.item_id for one in solved]
    for demonstration, episode in zip(demonstrations, solved, strict=True):
        said = [message["content"] for message in demonstration.messages if message.get("loss")]
        assert said == [turn.text for turn in episode.turns]
        assert demonstration.messages[0]["role"] == "system"


def test_a_run_cannot_train_on_an_endpoint(place, served):
    with pytest.raises(UserError, match=r"rollout\.engine=endpoint cannot train"):
        train(endpoint_config(place, served))
    assert not place.runs.exists(), "it is refused before anything is made"
