"""A run that was killed goes on where its last checkpoint stands: nothing is trained twice, no task is skipped."""

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from killed_runs import episodes, metrics
from tiny_runs import PATIENCE, TinyPlace, drawn_tasks, json_lines, server_pids, steps_of, wait_until
from transformers import AutoModelForCausalLM
from trying_worlds import arm

from openmanus_rl.errors import UserError
from openmanus_rl.trainer.run import train

STEPS = list(range(9))


def weights(run):
    return AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step_000008" / "actor").state_dict()


@pytest.mark.parametrize(
    ("algorithm", "episodes_a_step"), [pytest.param("grpo", 8, marks=pytest.mark.slow), ("ppo", 4)]
)
def test_a_killed_run_resumes_and_has_the_bits_of_an_uninterrupted_one(
    place, cli, request, tmp_path, algorithm, episodes_a_step
):
    preset = getattr(place, algorithm)
    model = request.getfixturevalue(f"{algorithm}_run") / "initial_model"
    words = [
        *["trainer.steps=8", "trainer.save_every=3", "trainer.validate_every=4", "rollout.tasks_per_step=4"],
        *[f"trainer.name=maze-{algorithm}", f"model.path={model}", "trainer.deterministic=true"],
        arm(tmp_path, f"run once {5 * episodes_a_step + 3}"),
    ]
    run = place.runs / f"maze-{algorithm}"
    first = cli(*place.command(*words, preset=preset))
    assert first.code == -signal.SIGKILL
    wait_until(lambda: not server_pids(run), PATIENCE, "the killed run's server ends")
    assert steps_of(run)[-1] == 5
    assert (run / "checkpoints" / "step_000003").is_dir(), "two steps are lost"

    second = cli(*place.command(*words, preset=preset))
    assert second.code == 0, second.err
    assert "resumed after step 3 from" in second.out
    assert [path.name for path in place.runs.iterdir()] == [run.name], "no second directory"
    assert steps_of(run) == STEPS
    assert (run / "summary.json").exists()

    whole = train(place.config(*words, f"trainer.runs_dir={place.runs.parent / 'whole'}", preset=preset))
    drawn = drawn_tasks(run, STEPS[1:])
    assert drawn == drawn_tasks(whole, STEPS[1:])
    assert len(drawn) == 32 == len(set(drawn))
    summaries = [json.loads((path / "summary.json").read_text()) for path in (run, whole)]
    assert summaries[0]["episodes"] == summaries[1]["episodes"]
    assert_same_bits(run, whole)


def assert_same_bits(resumed, uninterrupted):
    """Of weights, metrics and episodes; what took how long is another matter."""
    expected = weights(uninterrupted)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(resumed).items())
    assert metrics(resumed) == metrics(uninterrupted)
    assert episodes(resumed) == episodes(uninterrupted)


@pytest.fixture(scope="module")
def run_without_summary(shared_place, tmp_path_factory):
    """A run of two steps that was cut down before its summary."""
    run = train(TinyPlace(shared_place, tmp_path_factory.mktemp("cut")).config("trainer.steps=2"))
    (run / "summary.json").unlink()
    return run


@pytest.fixture
def stopped_run(place, run_without_summary):
    return Path(shutil.copytree(run_without_summary, place.runs / "maze-grpo"))


def resume(place, run, *words):
    """Go on to step 4, or to where `words` say."""
    return train(place.config("trainer.steps=4", f"trainer.resume={run}", *words))


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_note(place, stopped_run, capsys):
    weights_file = stopped_run / "checkpoints" / "step_000002" / "actor" / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:-100])
    resume(place, stopped_run)
    shown = capsys.readouterr().out
    assert "a checkpoint was passed over: step_000002: actor/model.safetensors has" in shown
    assert "resumed after step 0" in shown
    assert steps_of(stopped_run) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("trainer.seed=1", r"was trained with trainer\.seed=0; it cannot go on with trainer\.seed=1"),
        ("data.train_tasks=32", r"data\.train_tasks=64; .* data\.train_tasks=32"),
        ("env.options.size=4", r"env\.options=\{'size': 3\}; .* env\.options=\{'size': 4\}"),
        ("actor.lr=1e-5", r"actor\.lr"),
    ],
)
def test_what_a_checkpoint_cannot_follow_is_refused(place, stopped_run, word, complaint):
    with pytest.raises(UserError, match=complaint):
        resume(place, stopped_run, word)
    assert steps_of(stopped_run) == [0, 1, 2]


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        (
            "trainer.threads=2",
            r"is deterministic and was trained with trainer\.threads=1: with 2 its bits would differ",
        ),
        ("actor.micro_batch_tokens=512", r"actor\.micro_batch_tokens=8192: with 512 its bits would differ"),
    ],
)
def test_what_would_change_the_bits_of_a_deterministic_run_is_refused(place, stopped_run, word, complaint):
    config = stopped_run / "config.yaml"
    config.write_text(config.read_text().replace("deterministic: false", "deterministic: true"))
    with pytest.raises(UserError, match=complaint):
        resume(place, stopped_run, "trainer.deterministic=true", word)


def test_other_tasks_in_the_same_place_are_refused(place, stopped_run, tmp_path):
    from openmanus_rl.data.tasks import build_tasks, write_tasks

    for split in ("train", "validation"):
        others = build_tasks("maze", split, 80, {"size": 3})[16:]
        write_tasks(tmp_path / "others" / "maze" / f"{split}.parquet", others, {"size": 3})
    with pytest.raises(UserError, match=r"are not those that .* was trained on"):
        resume(place, stopped_run, f"data.dir={tmp_path / 'others'}")
    assert "steps: 2" in (stopped_run / "config.yaml").read_text(), "a refused call changes nothing"


def test_a_run_goes_on_without_the_cache_it_began_with(place, stopped_run, tmp_path, capsys):
    resume(place, stopped_run, f"trainer.cache_dir={tmp_path / 'no_cache'}")
    assert "warm start" not in capsys.readouterr().out
    assert not (tmp_path / "no_cache").exists()


def test_the_config_of_a_longer_run_is_written_down(place, stopped_run):
    resume(place, stopped_run, "trainer.save_every=1", "algorithm.reward_timeout=9")
    assert "steps: 4" in (stopped_run / "config.yaml").read_text()
    (event,) = [line for line in json_lines(stopped_run / "events.jsonl") if line["event"] == "resumed"]
    assert event["changed"]["trainer.steps"] == [2, 4]
    assert event["changed"]["trainer.save_every"] == [2, 1]
    assert event["changed"]["algorithm.reward_timeout"] == [300.0, 9.0]
    assert "actor.lr" not in event["changed"]


def test_a_run_killed_before_its_summary_reports_its_last_measurement(place, stopped_run):
    """The last checkpoint stands and the summary does not: nothing is left to train, the result is the measured one."""
    resume(place, stopped_run, "trainer.steps=2")
    summary = json.loads((stopped_run / "summary.json").read_text())
    assert summary["success_after"]["rate"] == json_lines(stopped_run / "metrics.jsonl")[2]["val/success/rate"]
    assert summary["episodes"] == 16


def test_a_finished_run_is_left_alone_by_the_same_command(place, grpo_run, tmp_path):
    shutil.copytree(grpo_run, place.runs / "maze-grpo")
    assert train(place.config("trainer.steps=1")).name == "maze-grpo-2"


def test_a_finished_run_says_so_and_goes_on_for_more_steps(place, grpo_run):
    run = place.runs / "maze-grpo"
    shutil.copytree(grpo_run, run)
    moved = [f"trainer.runs_dir={place.runs}", f"trainer.resume={run}"]
    with pytest.raises(UserError, match=r"is finished: its 3 steps are done\.\n.*trainer\.steps=6"):
        train(place.config(*moved))
    assert (run / "summary.json").exists()
    train(place.config(*moved, "trainer.steps=4"))
    assert steps_of(run) == [0, 1, 2, 3, 4]
    assert json.loads((run / "summary.json").read_text())["steps"] == 4


def test_a_run_that_is_out_of_time_is_finished_measured_and_goes_on_only_with_more_time(place, grpo_run):
    words = [f"model.path={grpo_run / 'initial_model'}", "trainer.name=timed", "trainer.steps=100000"]
    run = train(place.config(*words, "trainer.max_seconds=0.001"))
    assert steps_of(run) == [0, 1]
    assert "val/success/rate" in json_lines(run / "metrics.jsonl")[-1], "the last step is measured whenever it comes"
    again = [*words, f"trainer.resume={run}"]
    with pytest.raises(UserError, match=r"it has trained for \d+ seconds\.\n.*trainer\.max_seconds"):
        train(place.config(*again, "trainer.max_seconds=0.001"))
    trained = json.loads((run / "summary.json").read_text())["train_seconds"]
    train(place.config(*again, f"trainer.max_seconds={trained + 0.2}"))
    assert steps_of(run)[-1] >= 2
