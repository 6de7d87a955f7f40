"""`openmanus-rl eval` of a checkpoint plays what the trainer's validation played, token by token."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_runs import json_lines, played_tokens

from openmanus_rl.models.load import has_adapters
from openmanus_rl.trainer.run import train
from openmanus_rl.trainer.standalone import config_of, evaluate_model, run_of


@pytest.mark.parametrize(
    ("algorithm", "step", "where"),
    [("grpo", 3, ""), ("ppo", 2, "checkpoints/step_000002"), ("grpo", 2, "checkpoints/step_000002/actor")],
)
def test_a_checkpoint_plays_the_same_tokens_as_in_validation(request, tmp_path, algorithm, step, where):
    run = request.getfixturevalue(f"{algorithm}_run")
    model = run / where
    assert run_of(model) == run
    report = evaluate_model(config_of(run, []), str(model), "validation", None, tmp_path)
    line = json_lines(run / "metrics.jsonl")[step]
    assert report.success.rate == line["val/success/rate"]
    assert report.metrics == {name: value for name, value in line.items() if name.startswith("val/")}
    written = run / "episodes" / f"validation_step_{step:06d}.jsonl"
    assert played_tokens(tmp_path / "validation_step_000000.jsonl") == played_tokens(written)


def test_the_initial_model_plays_the_first_measurement(grpo_run):
    report = evaluate_model(config_of(grpo_run, []), str(grpo_run / "initial_model"), "validation", None, None)
    assert (
        report.metrics["val/episode/return/mean"]
        == json_lines(grpo_run / "metrics.jsonl")[0]["val/episode/return/mean"]
    )


def test_the_command_line_gives_the_same_number(grpo_run, cli):
    result = cli("eval", str(grpo_run), "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    line = json_lines(grpo_run / "metrics.jsonl")[-1]
    assert report["success"] == json.loads((grpo_run / "summary.json").read_text())["success_after"]
    assert report["metrics"]["val/episode/return/mean"] == line["val/episode/return/mean"]


def test_another_seed_plays_otherwise(grpo_run):
    played = [
        evaluate_model(config_of(grpo_run, [word]), str(grpo_run), "validation", None, None).metrics
        for word in ("trainer.seed=0", "trainer.seed=1")
    ]
    assert played[0]["val/response_length/mean"] != played[1]["val/response_length/mean"]


def test_a_run_that_asked_for_a_port_is_evaluated_beside_it(grpo_run):
    assert config_of(grpo_run, ["env.base_port=36001"]).env.base_port == 36001
    stored = grpo_run / "config.yaml"
    text = stored.read_text()
    try:
        stored.write_text(text.replace("base_port: null", "base_port: 36001"))
        assert config_of(grpo_run, []).env.base_port is None
    finally:
        stored.write_text(text)


def test_a_checkpoint_that_holds_adapters_is_evaluated_also_after_the_run_was_moved(place, tmp_path):
    run = train(place.config("model.lora.rank=4", "actor.lr=0.05", "trainer.steps=2", "trainer.name=adapters"))
    moved = Path(shutil.move(run, tmp_path / "moved"))
    actor = moved / "checkpoints" / "step_000002" / "actor"
    assert has_adapters(actor)
    reports = [
        evaluate_model(config_of(moved, []), str(model), "validation", None, None).metrics["val/episode/return/mean"]
        for model in (moved, moved / "initial_model")
    ]
    lines = json_lines(moved / "metrics.jsonl")
    # Merged weights differ in the last bits from weights beside adapters, so a rare token may differ too.
    assert reports[0] == pytest.approx(lines[-1]["val/episode/return/mean"], abs=0.2)
    assert reports[1] == lines[0]["val/episode/return/mean"]
    assert reports[0] != reports[1]
