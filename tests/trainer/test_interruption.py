"""Ctrl-C saves, stops every child process and says how to go on; a lost server is named."""

import signal
from pathlib import Path

from tiny_runs import PATIENCE, kill, server_pids, steps_of, wait_until

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
    """In this world a training step does not end: a run that waited for it would end with an error of its own."""
    model = f"model.path={grpo_run / 'initial_model'}"
    first = start_cli(
        *place.command(SLOW, model, "trainer.name=slow", "data.validation_tasks=4", "env.request_timeout=600")
    )
    run = place.runs / "slow"
    log = run / "env" / "server-0.log"
    wait_until(lambda: log.exists() and "a training step began" in log.read_text(), PATIENCE, "training")
    first.send(signal.SIGINT)
    wait_until(lambda: "press Ctrl-C again" in first.out, PATIENCE, "the note")
    first.send(signal.SIGINT)
    result = first.wait()
    assert result.code == STOPPED
    assert result.err == "openmanus-rl: stopped\n"
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


def test_a_lost_server_ends_the_run_with_its_log_named(place, start_cli):
    run = place.runs / "maze-grpo"
    process = start_cli(*place.command(ENDLESS, "rollout.retries=0"))
    wait_for_step(run, 2)
    (server,) = server_pids(run)
    kill(server)
    result = process.wait()
    assert result.code == 2
    assert "Traceback" not in result.err
    assert result.err.startswith("openmanus-rl: error: no environment server is left of 1; that at http://127.0.0.1:")
    assert f"exit code -9; its log, {run / 'env' / 'server-0.log'}" in result.err
    assert "goes on from its last checkpoint" in result.err


def test_a_run_goes_on_with_the_servers_that_are_left(place, start_cli):
    run = place.runs / "maze-grpo"
    process = start_cli(*place.command(ENDLESS, "env.num_servers=2"))
    wait_for_step(run, 2)
    servers = server_pids(run)
    assert len(servers) == 2
    kill(servers[0])
    last = steps_of(run)[-1]
    wait_for_step(run, last + 3)
    process.send(signal.SIGINT)
    assert process.wait().code == STOPPED
    assert server_pids(run) == []
