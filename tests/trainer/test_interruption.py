"""Ctrl-C saves, stops every child process and says how to go on; a lost server is named."""

import signal
from pathlib import Path

import pytest
from tiny_runs import PATIENCE, json_lines, kill, server_pids, steps_of, wait_until
from trying_worlds import arm

STOPPED = 130
ENDLESS = "trainer.steps=5000"
SLOW = f"env.name={Path(__file__).with_name('trying_worlds.py')}:SlowMaze"


def wait_for_step(run, step):
    wait_until(lambda: step in steps_of(run), PATIENCE, f"step {step}")


def test_an_interrupted_run_finishes_its_step_saves_and_resumes(place, start_cli):
    run = place.runs / "maze-grpo"
    command = place.command(ENDLESS, "trainer.save_every=2500", "trainer.validate_every=2500")
    first = start_cli(*command)
    wait_for_step(run, 2)
    first.send(signal.SIGINT)
    result = first.wait()
    assert result.code == STOPPED
    assert result.err == "openmanus-rl: stopped\n"
    last = steps_of(run)[-1]
    assert "stopping after this step" in result.out
    assert f"stopped after step {last} of 5000; everything is saved in {run}" in result.out
    assert f"openmanus-rl train trainer.resume={run}" in result.out
    assert (run / "checkpoints" / f"step_{last:06d}").is_dir()
    assert (run / "learning_curve.png").exists()
    assert server_pids(run) == []

    second = start_cli(*command)
    wait_for_step(run, last + 1)
    second.send(signal.SIGTERM)  # what a cluster sends before it takes the machine away
    result = second.wait()
    assert result.code == STOPPED
    assert f"resumed after step {last} from" in result.out
    assert steps_of(run) == list(range(steps_of(run)[-1] + 1))

    beyond = start_cli("train", f"trainer.resume={run}", "trainer.steps=1").wait()
    assert (beyond.code, f"stands after step {steps_of(run)[-1]}" in beyond.err) == (2, True), beyond.err
    assert not (run / "summary.json").exists(), "what was never measured is no result"


def test_the_resume_line_works_by_itself(place, start_cli):
    run = place.runs / "maze-ppo"
    first = start_cli(*place.command(ENDLESS, "trainer.save_every=2500", preset=place.ppo))
    wait_for_step(run, 1)
    first.send(signal.SIGINT)
    assert first.wait().code == STOPPED
    last = steps_of(run)[-1]
    second = start_cli("train", f"trainer.resume={run}")
    wait_for_step(run, last + 1)
    second.send(signal.SIGINT)
    assert second.wait().code == STOPPED
    assert steps_of(run) == list(range(steps_of(run)[-1] + 1))


def test_a_second_interrupt_stops_at_once(place, start_cli, grpo_run):
    """In this world an episode of training takes half a minute; a run that waited for it would have made its step."""
    model = f"model.path={grpo_run / 'initial_model'}"
    first = start_cli(*place.command(SLOW, model, "trainer.name=slow", "data.validation_tasks=4"))
    run = place.runs / "slow"
    log = run / "env" / "server-0.log"
    wait_until(lambda: log.exists() and "a training step began" in log.read_text(), PATIENCE, "training")
    first.send(signal.SIGINT)
    wait_until(lambda: "press Ctrl-C again" in first.out, PATIENCE, "the note")
    first.send(signal.SIGINT)
    result = first.wait()
    assert result.code == STOPPED
    assert result.err.endswith("openmanus-rl: stopped\n")
    assert "Traceback" not in result.err
    assert steps_of(run) == [0]
    assert server_pids(run) == []


def test_an_interrupt_during_set_up_leaves_nothing_half_made(place, start_cli, tmp_path):
    cache = tmp_path / "cache"
    process = start_cli(*place.command("warm_start.epochs=5000", f"trainer.cache_dir={cache}"))
    wait_until(lambda: "warm start: step 1/" in process.out, PATIENCE, "the warm start")
    process.send(signal.SIGINT)
    result = process.wait()
    assert result.code == STOPPED
    assert result.err == "openmanus-rl: stopped\n"
    assert list(cache.iterdir()) == []
    assert server_pids(place.runs / "maze-grpo") == []


def test_a_run_goes_on_when_one_of_its_servers_is_killed(place, start_cli):
    run = place.runs / "maze-grpo"
    process = start_cli(*place.command(ENDLESS, "env.num_servers=2"))
    wait_for_step(run, 2)
    servers = server_pids(run)
    assert len(servers) == 2
    kill(servers[0])
    wait_until(lambda: "was started again" in process.out, PATIENCE, "the note")
    wait_for_step(run, steps_of(run)[-1] + 2)
    assert len(server_pids(run)) == 2
    process.send(signal.SIGINT)
    assert process.wait().code == STOPPED
    assert server_pids(run) == []


def test_episodes_of_a_killed_server_are_played_again_and_no_failed_one_is_trained_on(place, cli, grpo_run, tmp_path):
    """The only server dies in the sixth step."""
    world, model = arm(tmp_path, f"server once {5 * 8 + 4}"), f"model.path={grpo_run / 'initial_model'}"
    result = cli(*place.command(world, model, "trainer.name=fatal", "trainer.steps=8"))
    assert result.code == 0, result.err
    assert "ended (exit code -9) and was started again; its log:" in result.out
    assert "episodes failed" not in result.out
    run = place.runs / "fatal"
    retries = [line["episode/retries/env_failure"] for line in json_lines(run / "metrics.jsonl")[1:]]
    assert [step for step, count in enumerate(retries, 1) if count] == [6]
    for step, line in enumerate(json_lines(run / "metrics.jsonl")[1:], 1):
        episodes = json_lines(run / "episodes" / f"train_step_{step:06d}.jsonl")
        assert line["episode/count"] == len(episodes) == 8
        assert sum(episode["failed_tries"].count("env_failure") for episode in episodes) == retries[step - 1]
        assert not {episode["stop_reason"] for episode in episodes} & {"env_failure", "env_timeout", "aborted"}


@pytest.mark.slow
def test_a_server_that_keeps_ending_ends_the_run_with_its_log_named(place, cli, grpo_run, tmp_path):
    world, model = arm(tmp_path, "server always 1"), f"model.path={grpo_run / 'initial_model'}"
    result = cli(*place.command(world, model, "trainer.name=doomed", "rollout.retries=8", "rollout.failure_budget=8"))
    assert result.code == 2
    assert "Traceback" not in result.err
    assert "openmanus-rl: error: no environment server is left of 1; that at http://127.0.0.1:" in result.err
    assert f"exit code -9; its log, {place.runs / 'doomed' / 'env' / 'server-0.log'}" in result.err
    assert "goes on from its last checkpoint" in result.err
    assert result.out.count("was started again") == 5
    assert "stays down" in result.out
