"""`rollout.ahead`: episodes are played while an earlier step trains; the run stays whole, exact and stoppable."""

import signal
from pathlib import Path

import pytest
import torch
from tiny_runs import PATIENCE, drawn_tasks, json_lines, server_pids, steps_of, wait_until
from transformers import AutoModelForCausalLM
from trying_worlds import arm

from openmanus_rl.errors import UserError
from openmanus_rl.trainer.run import train

AHEAD = ["rollout.ahead=1", "actor.proximal=recompute", "algorithm.correction.kind=token"]
SLOW = f"env.name={Path(__file__).with_name('trying_worlds.py')}:SlowMaze"


def train_episodes(run, step):
    return json_lines(run / "episodes" / f"train_step_{step:06d}.jsonl")


@pytest.fixture(scope="module")
def run(shared_place, tmp_path_factory):
    """Six steps, one ahead, with a checkpoint of every policy."""
    from tiny_runs import TinyPlace

    place = TinyPlace(shared_place, tmp_path_factory.mktemp("ahead"))
    words = ["trainer.steps=6", "trainer.save_every=1", "trainer.keep_checkpoints=9", "actor.lr=0.003"]
    return train(place.config(*AHEAD, *words))


def test_no_token_is_more_than_ahead_versions_old_and_episodes_go_on_over_an_update(run):
    mixed = 0
    for line in json_lines(run / "metrics.jsonl")[1:]:
        versions = [
            {version for version in segment["versions"] if version is not None}
            for episode in train_episodes(run, line["step"])
            for segment in episode["segments"]
        ]
        behind = {line["step"] - 1 - version for of_episode in versions for version in of_episode}
        assert behind <= {0, 1}
        assert line["rollout/staleness_max"] == max(behind)
        assert min(behind) <= line["rollout/staleness_mean"] <= max(behind)
        mixed += sum(len(of_episode) == 2 for of_episode in versions)
    assert mixed, "not one episode saw two policies"


def test_every_token_has_the_log_prob_of_the_policy_whose_version_it_bears(run):
    """Also after an update in the middle of its episode: no key of the older weights is used any more."""
    models = {
        version: AutoModelForCausalLM.from_pretrained(run / "checkpoints" / f"step_{version:06d}" / "actor").eval()
        for version in range(6)
    }
    for step in range(1, 7):
        for episode in train_episodes(run, step):
            (segment,) = episode["segments"]
            ids = torch.tensor([segment["ids"]])
            of_version = {}
            for position, (log_prob, version) in enumerate(zip(segment["log_probs"], segment["versions"], strict=True)):
                if version is None:
                    continue
                if version not in of_version:
                    with torch.no_grad():
                        of_version[version] = models[version](ids).logits[0].log_softmax(-1)
                expected = of_version[version][position - 1, segment["ids"][position]]
                assert log_prob == pytest.approx(float(expected), abs=1e-4)


def test_the_tasks_are_those_of_a_run_that_takes_turns(run, grpo_run):
    assert drawn_tasks(run, [1, 2, 3]) == drawn_tasks(grpo_run, [1, 2, 3])


def test_each_handing_over_of_weights_is_proven(run):
    assert all(line["rollout/canary_gap"] < 1e-3 for line in json_lines(run / "metrics.jsonl")[1:])


@pytest.mark.parametrize(
    "words",
    [["rollout.ahead=3", "rollout.refills=1"], ["model.lora.rank=4"], ["algorithm.estimator=turn_gae"]],
    ids=["three steps with refills", "adapters", "critic"],
)
def test_it_goes_with(place, words):
    run = train(place.config(*AHEAD, "trainer.steps=5", "trainer.save_every=5", "trainer.validate_every=5", *words))
    assert steps_of(run) == [0, 1, 2, 3, 4, 5]
    ahead = 3 if "rollout.ahead=3" in words else 1
    assert all(line["rollout/staleness_max"] <= ahead for line in json_lines(run / "metrics.jsonl")[1:])


@pytest.mark.slow
def test_it_goes_with_vllm(place):
    """Whose attention wants heads of 32. Turns that are being sampled end with the weights they began with."""
    engine = ["rollout.engine=vllm", "rollout.vllm.kv_cache_gb=0.2", "model.tiny.hidden_size=64"]
    run = train(place.config(*AHEAD, *engine, "trainer.steps=6"))
    lines = json_lines(run / "metrics.jsonl")[1:]
    assert all(line["rollout/canary_gap"] < 1e-3 for line in lines)
    assert {line["rollout/staleness_max"] for line in lines} == {0, 1}
    turns = [
        turn for step in range(1, 7) for episode in train_episodes(run, step) for turn in versions_by_turn(episode)
    ]
    assert all(len(versions) == 1 for versions in turns)


def versions_by_turn(episode):
    return [set(episode["segments"][0]["versions"][turn["start"] : turn["end"]]) for turn in episode["turns"]]


def test_a_killed_run_draws_what_was_under_way_again(place, cli, run, grpo_run, tmp_path):
    """Killed while step 6 or 7 is played: nothing is trained twice, no task is skipped."""
    model = f"model.path={grpo_run / 'initial_model'}"
    words = [*AHEAD, "trainer.steps=6", "trainer.save_every=2", "trainer.name=killed", model]
    command = place.command(*words, arm(tmp_path, f"run once {4 * 8 + 3}"))
    assert cli(*command).code == -signal.SIGKILL
    killed = place.runs / "killed"
    wait_until(lambda: not server_pids(killed), PATIENCE, "the killed run's server ends")
    assert steps_of(killed)[-1] < 5
    assert cli(*command).code == 0
    assert steps_of(killed) == list(range(7))
    order = [item_id.rpartition("_")[2] for item_id in drawn_tasks(killed, range(1, 7))]
    assert order == [item_id.rpartition("_")[2] for item_id in drawn_tasks(run, range(1, 7))]


def test_two_interrupts_end_a_run_that_waits_for_its_episodes(place, start_cli, grpo_run):
    model = f"model.path={grpo_run / 'initial_model'}"
    process = start_cli(*place.command(*AHEAD, SLOW, model, "trainer.name=slow", "data.validation_tasks=4"))
    run = place.runs / "slow"
    log = run / "env" / "server-0.log"
    wait_until(lambda: log.exists() and "a training step began" in log.read_text(), PATIENCE, "training")
    process.send(signal.SIGINT)
    wait_until(lambda: "press Ctrl-C again" in process.out, PATIENCE, "the note")
    process.send(signal.SIGINT)
    result = process.wait()
    assert result.code == 130
    assert result.err.endswith("openmanus-rl: stopped\n")
    assert "Traceback" not in result.err
    assert steps_of(run) == [0]
    assert server_pids(run) == []


def test_an_interrupt_finishes_the_step_and_drops_the_next(place, start_cli):
    run = place.runs / "maze-grpo"
    process = start_cli(*place.command(*AHEAD, "trainer.steps=5000", "trainer.save_every=2500"))
    wait_until(lambda: 2 in steps_of(run), PATIENCE, "step 2")
    process.send(signal.SIGINT)
    result = process.wait()
    assert result.code == 130
    assert result.err == "openmanus-rl: stopped\n"
    assert (run / "checkpoints" / f"step_{steps_of(run)[-1]:06d}").is_dir()
    assert server_pids(run) == []


@pytest.mark.slow
def test_a_failure_in_what_is_played_ahead_ends_the_run_as_any_other(place, cli, grpo_run, tmp_path):
    world, model = arm(tmp_path, "server always 1"), f"model.path={grpo_run / 'initial_model'}"
    patient = ["rollout.retries=8", "rollout.failure_budget=8"]
    result = cli(*place.command(*AHEAD, world, model, "trainer.name=doomed", *patient))
    assert result.code == 2
    assert "Traceback" not in result.err
    assert "openmanus-rl: error: no environment server is left of 1" in result.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["rollout.ahead=1"], r"rollout.ahead=1 trains on tokens of older policies.*\n.*actor.proximal=recompute"),
        (["rollout.ahead=2", "actor.proximal=recompute"], r"algorithm.correction.kind=token"),
        ([*AHEAD, "trainer.deterministic=true"], r"wherever they happen to be; trainer.deterministic=true cannot hold"),
    ],
)
def test_settings_that_do_not_go_with_it_are_refused(place, words, complaint):
    with pytest.raises(UserError, match=complaint):
        place.config(*words)
