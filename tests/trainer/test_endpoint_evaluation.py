"""A model behind an OpenAI-compatible endpoint is measured as ours are, and its successes can be fine-tuned on."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "envs"))

from live_service import live_app
from tiny_runs import TinyPlace

from openmanus_rl.agent.gateway import Gateway
from openmanus_rl.agent.records import read_episodes
from openmanus_rl.agent.rows import episodes_to_rows
from openmanus_rl.data.demonstrations import read_demonstrations
from openmanus_rl.errors import UserError
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.models.chat import ChatRenderer
from openmanus_rl.models.load import load_causal_lm, load_tokenizer
from openmanus_rl.trainer.run import train
from openmanus_rl.trainer.sft_run import run_sft
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


@pytest.fixture(scope="module")
def greedy(shared_place, tmp_path_factory, served):
    """What came of twelve tasks played greedily through the endpoint: a report, episodes, demonstrations."""
    place = TinyPlace(shared_place, shared_place / "unused")
    there = tmp_path_factory.mktemp("there")
    report = evaluate_endpoint(
        endpoint_config(place, served, GREEDY), "validation", 12, there, there / "solved.parquet"
    )
    return report, read_episodes(there / "validation_step_000000.jsonl"), there / "solved.parquet"


def test_it_plays_the_very_episodes_that_the_model_plays_without_an_endpoint(place, grpo_run, greedy, tmp_path):
    report, theirs, _ = greedy
    own = evaluate_model(place.config(GREEDY), str(grpo_run), "validation", 12, tmp_path)
    ours = read_episodes(tmp_path / "validation_step_000000.jsonl")
    assert report.success == own.success
    assert report.metrics["endpoint/tokens"] > 0
    for one, other in zip(theirs, ours, strict=True):
        assert [turn.text for turn in one.turns] == [turn.text for turn in other.turns]
        assert [turn.reward for turn in one.turns] == [turn.reward for turn in other.turns]


def test_its_episodes_make_no_rows(greedy):
    with pytest.raises(UserError, match="text, no tokens"):
        episodes_to_rows(greedy[1], pad_token_id=0)


def test_what_a_model_behind_an_endpoint_solved_can_be_fine_tuned_on(place, greedy, tmp_path):
    _, episodes, solved = greedy
    demonstrations = read_demonstrations(solved)
    assert [one.item_id for one in demonstrations] == [one.task.item_id for one in episodes if one.success] != []
    for demonstration, episode in zip(demonstrations, (one for one in episodes if one.success), strict=True):
        said = [message["content"] for message in demonstration.messages if message.get("loss")]
        assert said == [turn.text for turn in episode.turns]
        assert demonstration.messages[0]["role"] == "system"
    words = ("warm_start.enabled=true", "warm_start.epochs=1", f"warm_start.data={solved}")
    assert (run_sft(place.config(*words), tmp_path / "taught") / "model.safetensors").exists()


def test_a_run_cannot_train_on_an_endpoint(place, served):
    with pytest.raises(UserError, match=r"rollout\.engine=endpoint cannot train"):
        train(endpoint_config(place, served))
    assert not place.runs.exists(), "it is refused before anything is made"
