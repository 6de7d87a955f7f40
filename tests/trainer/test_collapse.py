"""A learning rate a hundred times too high, on purpose: the guard sees it, goes back, and writes down why."""

import json

import pytest
from tiny_runs import json_lines, steps_of

from openmanus_rl.cli.presets import EXAMPLES
from openmanus_rl.errors import UserError
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.run import train

ROLLBACK = ["guard.action=rollback", "actor.lr=0.2", "trainer.steps=4", "trainer.save_every=1", "rollout.group_size=8"]


def guard_events(run):
    return [line for line in json_lines(run / "events.jsonl") if line["event"] == "guard"]


def test_a_run_goes_back_with_a_smaller_step_and_a_post_mortem_says_why(place):
    run = train(place.config(*ROLLBACK, "guard.lr_factor=0.01"))
    first = guard_events(run)[0]
    assert (first["action"], first["step"], first["back_to"]) == ("rollback", 1, 0)
    assert "actor/ppo_kl" in first["readings"]
    text = (run / first["postmortem"]).read_text()
    assert "the updates are too large" in text
    assert "back to the checkpoint of step 0, with the actor's learning rate times 0.01" in text
    assert "held-out tasks" in text
    assert text.count("says:") > 1, "the episodes that show it"
    assert steps_of(run) == [0, 1, 2, 3, 4], "each step once"
    assert json_lines(run / "metrics.jsonl")[-1]["actor/lr"] == pytest.approx(0.2 * 0.01 ** len(guard_events(run)))


def test_a_run_that_collapses_again_and_again_is_stopped_with_its_last_good_checkpoint(place, cli):
    result = cli(*place.command(*ROLLBACK, "guard.lr_factor=0.9", "guard.max_rollbacks=1"))
    assert result.code == 2
    assert "openmanus-rl: error: the guard stopped the run at step 1: the updates are too large" in result.err
    assert "Traceback" not in result.err
    run = place.runs / "maze-grpo"
    assert [event["action"] for event in guard_events(run)] == ["rollback", "stop"]
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_000000"]


def test_by_default_a_collapse_is_only_said(place, capsys):
    run = train(place.config("actor.lr=0.2", "trainer.steps=2", "rollout.group_size=8"))
    assert [event["action"] for event in guard_events(run)] == ["warn"]
    assert "the guard, at step 1: the updates are too large" in capsys.readouterr().out
    assert steps_of(run) == [0, 1, 2]


def test_a_stop_says_what_to_do(place):
    with pytest.raises(UserError, match=r"Lower actor\.lr"):
        train(place.config("actor.lr=0.2", "guard.action=stop", "rollout.group_size=8"))


@pytest.mark.slow
def test_the_default_run_with_a_hundredfold_learning_rate_is_caught_before_success_falls_by_half(tmp_path):
    """And it learns in the end: every rollback takes a tenth of the step."""
    words = ["guard.action=rollback", "trainer.steps=30", "actor.lr=0.05"]
    words += [f"trainer.runs_dir={tmp_path / 'runs'}", f"trainer.cache_dir={tmp_path / 'cache'}"]
    run = train(load_checked_config(EXAMPLES / "maze_grpo.yaml", [*words, f"data.dir={tmp_path / 'data'}"]))
    caught = guard_events(run)
    assert 1 <= len(caught) <= 3
    assert all(event["action"] == "rollback" for event in caught)
    assert all("the updates are too large" in event["cause"] for event in caught)
    summary = json.loads((run / "summary.json").read_text())
    before, after = summary["success_before"], summary["success_after"]
    lines = json_lines(run / "metrics.jsonl")
    lowest = min(line["success/rate"] for line in lines[1:])
    print(
        f"caught at {[event['step'] for event in caught]}; success {before['rate']:.3f} -> {after['rate']:.3f}, "
        f"lowest in training {lowest:.3f}"
    )
    assert lowest > before["rate"] / 2, "no policy that had fallen by half ever played a training step"
    assert after["low"] > before["high"], "it learns in the end"
