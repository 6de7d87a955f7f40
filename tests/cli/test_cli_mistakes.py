"""A user's mistake is one clear message and exit code 2, never a stack trace."""

import shutil
import signal
import socket

import pytest
from tiny_runs import PATIENCE, steps_of, wait_until


def assert_mistake(result, *parts: str) -> None:
    assert result.code == 2, f"exit code {result.code}"
    assert "Traceback" not in result.err
    assert result.err.startswith("openmanus-rl: error: ")
    assert result.err.count("openmanus-rl: error: ") == 1
    for part in parts:
        assert part in result.err


@pytest.mark.parametrize("words", [["--env_name", "marble"], ["env.name=marble"]])
def test_an_unknown_environment_lists_the_known_ones(cli, words):
    result = cli("train", *words)
    assert_mistake(result, "'marble'", "Known: alfworld, ", "maze, ", "module:name")
    assert result.err.count("Known: ") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["play", "maze", "--options", '{"size": "a"}'],
        ["play", "wordle", "--options", '{"size": "a"}'],
        ["plan", "--env_name", "maze", "env.options.size=abc"],
    ],
)
def test_an_option_that_the_world_does_not_take_is_named(cli, words):
    assert_mistake(cli(*words), "size")


def test_a_world_that_is_served_elsewhere_is_not_served_here(cli):
    assert_mistake(cli("env", "serve", "agentgym/webarena", "--port", "0"), "agentgym/webarena", "env.urls")


def test_the_check_of_a_server_that_is_not_there_prints_no_table(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = cli("env", "check", f"http://127.0.0.1:{port}")
    assert_mistake(result, f"127.0.0.1:{port} does not answer")
    assert result.out == ""


def test_a_mistyped_key_is_answered_with_the_right_one(cli):
    assert_mistake(cli("train", "trainer.stepz=3"), "trainer.stepz is not a key. Did you mean trainer.steps?")


def test_a_section_that_is_set_like_a_key_is_named(cli):
    assert_mistake(cli("train", "actor=3"), "actor is a section, not a value", "actor.NAME=VALUE")


def test_a_port_that_there_is_not_is_named(cli):
    result = cli("env", "serve", "maze", "--port", "99999")
    assert (result.code, "--port" in result.err, "65535" in result.err) == (2, True, True)


def test_a_key_that_the_mode_ignores_says_why(cli):
    assert_mistake(cli("train", "critic.lr=1e-3"), "critic.lr has no effect: algorithm.estimator=grpo trains no critic")


def test_a_port_that_was_asked_for_and_is_taken_is_named(cli, place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = cli(*place.command(), "--base_port", str(port))
    assert_mistake(result, f"port {port} on 127.0.0.1", "--base_port")


def test_a_missing_model_directory_is_named(cli, place):
    assert_mistake(cli(*place.command(), "--model", "./nowhere"), "there is no model directory ./nowhere")


def test_an_unknown_flag_is_named(cli):
    result = cli("train", "--env_nam", "maze")
    assert result.code == 2
    assert "No such option: --env_nam" in result.err
    assert "--env_name" in result.err
    assert "Traceback" not in result.err


def test_a_word_that_is_no_override_is_named(cli):
    assert_mistake(cli("train", "maze"), "'maze' is not an override", "key=value")


def test_a_missing_preset_is_named(cli, tmp_path):
    assert_mistake(cli("train", "--config", str(tmp_path / "p.yaml")), f"there is no preset at {tmp_path / 'p.yaml'}")


def test_two_runs_in_one_directory_are_refused(cli, start_cli, place):
    run = place.runs / "maze-grpo"
    first = start_cli(*place.command("trainer.steps=5000"))
    wait_until(lambda: 1 in steps_of(run), PATIENCE, "step 1")
    second = cli("train", f"trainer.resume={run}")
    assert_mistake(second, f"{run} is in use by another run (process {first.pid})", "trainer.resume=never")
    first.send(signal.SIGINT)
    assert first.wait().code == 130


def test_resuming_what_is_no_run_is_refused(cli, tmp_path):
    assert_mistake(cli("train", f"trainer.resume={tmp_path}"), f"{tmp_path} is not a run directory")


def test_resuming_a_finished_run_says_how_to_train_it_further(cli, grpo_run):
    result = cli("train", f"trainer.resume={grpo_run}")
    assert_mistake(result, f"{grpo_run} is finished: its 3 steps are done.", "trainer.steps=6")


def test_resuming_with_the_other_algorithm_is_refused(cli, grpo_run):
    result = cli("train", "--algorithm", "ppo", f"trainer.resume={grpo_run}")
    assert_mistake(result, f"{grpo_run} was trained with grpo", "./train_grpo.sh")


def test_a_preset_of_the_other_algorithm_is_refused(cli, place):
    result = cli("train", "--algorithm", "ppo", "--config", str(place.grpo), "--print-config")
    assert_mistake(result, f"{place.grpo} trains with grpo, not with ppo", "./train_grpo.sh")


def test_resuming_with_another_seed_is_refused(cli, grpo_run):
    result = cli("train", f"trainer.resume={grpo_run}", "trainer.seed=5")
    assert_mistake(result, "was trained with trainer.seed=0; it cannot go on with trainer.seed=5")


def test_eval_of_a_run_without_a_checkpoint_is_refused(cli, grpo_run, tmp_path):
    shutil.copy(grpo_run / "config.yaml", tmp_path)
    (tmp_path / "checkpoints").mkdir()
    assert_mistake(cli("eval", str(tmp_path)), f"{tmp_path} has no checkpoint yet")


def test_eval_of_nothing_says_what_it_needs(cli):
    assert_mistake(cli("eval"), "eval needs one of a model, --policy and --endpoint.")


def test_eval_of_a_directory_that_is_not_there_names_it(cli, tmp_path):
    assert_mistake(cli("eval", str(tmp_path / "nothing")), f"there is no model directory {tmp_path / 'nothing'}")


def test_eval_refuses_a_key_that_only_training_reads(cli, grpo_run):
    assert_mistake(cli("eval", str(grpo_run), "actor.lr=1e-4"), "actor.lr has no effect on eval.")


def test_an_unknown_split_or_policy_is_named(cli):
    assert_mistake(cli("eval", "--policy", "clever"), "--policy clever is not known")
    assert_mistake(
        cli("eval", "--policy", "random", "--split", "tset"), "--split tset is not known. Did you mean test?"
    )


def test_inspecting_a_missing_or_foreign_file_names_it(cli, tmp_path):
    missing, foreign = tmp_path / "missing.parquet", tmp_path / "foreign.parquet"
    foreign.write_text("no parquet")
    assert_mistake(cli("data", "inspect", str(missing)), f"there is no file {missing}")
    assert_mistake(cli("data", "inspect", str(foreign)), f"{foreign} is not a readable parquet file")


def test_wrong_options_of_a_world_are_named(cli, tmp_path):
    assert_mistake(cli("data", "build", "maze", "--options", "size"), "--options is not JSON")
    assert_mistake(cli("data", "build", "maze", "--options", "[5]"), "--options is [5], not a JSON object")
    assert_mistake(cli("train", "env.options.colour=red"), "colour")


def test_sizes_that_agentgym_does_not_have_are_refused(cli):
    assert_mistake(cli("data", "build", "agentgym/webarena", "--agentgym"), "no training tasks of agentgym/webarena")


def test_sft_does_not_write_over_what_is_there(cli, tmp_path):
    assert_mistake(cli("sft", "--output", str(tmp_path)), f"{tmp_path} is there already")


def test_sft_on_given_demonstrations_refuses_keys_of_the_demonstrator(cli, tmp_path):
    result = cli("sft", "--output", str(tmp_path / "m"), "--data", "d.parquet", "warm_start.error_rate=0.1")
    assert_mistake(result, "warm_start.error_rate has no effect on sft --data")
