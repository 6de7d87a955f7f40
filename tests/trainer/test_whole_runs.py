"""A run leaves a complete directory behind, and nothing else."""

import json

import pytest
import yaml
from tiny_runs import json_lines, server_pids, steps_of
from transformers import AutoModelForCausalLM, AutoTokenizer

from openmanus_rl.config.load import config_from_dict
from openmanus_rl.models.value import ValueModel
from openmanus_rl.tracking.checkpoints import best_checkpoint, find_damage


@pytest.fixture(params=["grpo", "ppo"])
def run(request):
    return request.getfixturevalue(f"{request.param}_run")


def algorithm(run):
    return run.name.partition("-")[2]


def test_the_resolved_config_and_the_versions_are_kept(run):
    config = config_from_dict(yaml.safe_load((run / "config.yaml").read_text()))
    assert (config.trainer.steps, config.env.options) == (3, {"size": 3})
    versions = json.loads((run / "versions.json").read_text())
    assert versions["seeds"] == {"run": 0}
    assert versions["packages"]["torch"]


def test_metrics_have_one_line_a_step_in_order(run):
    assert steps_of(run) == [0, 1, 2, 3]
    lines = json_lines(run / "metrics.jsonl")
    assert [line["step"] for line in lines if "val/success/rate" in line] == [0, 2, 3]
    assert all("success/rate" in line and "actor/updated" in line for line in lines[1:])
    assert any(line["actor/updated"] == 1 for line in lines[1:])
    assert all(("critic/vf_loss" in line) == (algorithm(run) == "ppo") for line in lines[1:])


def test_every_update_says_how_far_the_engine_was_from_the_trainer_and_of_how_many_tokens_it_is_proven(run):
    for line in json_lines(run / "metrics.jsonl")[1:]:
        if line["actor/updated"]:
            assert 0 <= line["rollout/log_prob_gap_mean"] <= line["rollout/log_prob_gap_max"] < 1e-4
            assert line["rollout/log_prob_gap_max"] > 0, "two ways to compute differ in their last bits"
            episodes = json_lines(run / "episodes" / f"train_step_{line['step']:06d}.jsonl")
            sampled = sum(sum(segment["mask"]) for episode in episodes for segment in episode["segments"])
            assert 0 < line["actor/proven_tokens"] <= sampled


def test_tensorboard_has_the_same_numbers(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tensorboard")).Reload()
    logged = {event.step: event.value for event in board.Scalars("episode/return/mean")}
    lines = json_lines(run / "metrics.jsonl")[1:]
    assert logged == pytest.approx({line["step"]: line["episode/return/mean"] for line in lines})


def test_every_validation_episode_is_written_and_agrees_with_the_metrics(run):
    for line in json_lines(run / "metrics.jsonl"):
        if "val/success/rate" in line:
            episodes = json_lines(run / "episodes" / f"validation_step_{line['step']:06d}.jsonl")
            assert len(episodes) == 12 == len({episode["item_id"] for episode in episodes})
            assert line["val/success/rate"] == sum(episode["success"] for episode in episodes) / 12
            assert line["val/episode/return/mean"] == pytest.approx(sum(episode["return"] for episode in episodes) / 12)


def test_training_episodes_have_text_tokens_mask_log_probs_and_rewards(run):
    for step in (1, 2, 3):
        episodes = json_lines(run / "episodes" / f"train_step_{step:06d}.jsonl")
        assert len(episodes) == 8
        for episode in episodes:
            (segment,) = episode["segments"]
            sampled = [turn["end"] - turn["start"] for turn in episode["turns"]]
            assert sum(segment["mask"]) == sum(sampled) > 0
            assert [value is not None for value in segment["log_probs"]] == list(map(bool, segment["mask"]))
            assert {version for version in segment["versions"] if version is not None} == {step - 1}
            if segment["advantages"] is not None:
                pairs = zip(segment["log_probs"], segment["trainer_log_probs"], strict=True)
                assert all(
                    engine == pytest.approx(trainer, abs=1e-4) for engine, trainer in pairs if engine is not None
                )
            assert sum(segment["rewards"]) == pytest.approx(episode["return"])
            assert any(turn["text"] for turn in episode["turns"])


def test_the_learning_curve_is_a_picture(run):
    from matplotlib.image import imread

    assert imread(run / "learning_curve.png").shape[0] > 100


def test_the_summary_says_what_came_of_it(run):
    summary = json.loads((run / "summary.json").read_text())
    lines = json_lines(run / "metrics.jsonl")
    episodes = [
        episode for step in (1, 2, 3) for episode in json_lines(run / "episodes" / f"train_step_{step:06d}.jsonl")
    ]
    assert summary["env"] == "maze"
    assert summary["algorithm"] == algorithm(run)
    assert summary["seed"] == 0
    assert summary["episodes"] == len(episodes) == 24
    assert summary["sampled_tokens"] == sum(sum(episode["segments"][0]["mask"]) for episode in episodes)
    assert 0 < summary["train_seconds"] < summary["total_seconds"]
    for name, line in (("success_before", lines[0]), ("success_after", lines[-1])):
        assert set(summary[name]) == {"rate", "low", "high", "n"}
        assert summary[name]["n"] == 12
        assert summary[name]["rate"] == line["val/success/rate"]
        assert (summary[name]["low"], summary[name]["high"]) == (line["val/success/low"], line["val/success/high"])
    model = AutoModelForCausalLM.from_pretrained(run / "initial_model")
    assert summary["model_parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_the_last_checkpoints_are_whole_and_load_with_transformers(run):
    checkpoints = sorted((run / "checkpoints").iterdir())
    kept = {"step_000002", "step_000003", best_checkpoint(run / "checkpoints").path.name}
    assert {path.name for path in checkpoints} == kept
    for path in checkpoints:
        assert find_damage(path) is None
        model = AutoModelForCausalLM.from_pretrained(path / "actor")
        tokenizer = AutoTokenizer.from_pretrained(path / "actor")
        answer = model.generate(**tokenizer("Reach the goal", return_tensors="pt"), max_new_tokens=3)
        assert answer.shape[1] > 3
        if algorithm(run) == "ppo":
            ValueModel.load(path / "critic")


def test_training_has_changed_the_weights(run):
    before = AutoModelForCausalLM.from_pretrained(run / "initial_model").state_dict()
    after = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step_000003" / "actor").state_dict()
    assert any(not before[name].equal(after[name]) for name in before)


def test_no_environment_server_outlives_its_run(run):
    assert (run / "env" / "server-0.log").exists()
    assert server_pids(run) == []


def test_what_happened_is_in_the_events(run):
    assert [line["event"] for line in json_lines(run / "events.jsonl")] == [
        "started",
        *["checkpoint"] * 3,
        "finished",
    ]
