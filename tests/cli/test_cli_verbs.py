"""What each verb does, as a user calls it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml
from tiny_runs import PATIENCE, json_lines, wait_until
from typer.testing import CliRunner

from openmanus_rl.cli.env import app as env_app
from openmanus_rl.config.load import config_from_dict, load_config
from openmanus_rl.envs.access import TOKEN_VARIABLE

COMMAND = Path(sys.executable).with_name("openmanus-rl")


def assert_done(result):
    assert result.code == 0, result.err
    return result


@pytest.mark.parametrize(
    ("verb", "told"),
    [
        ([], ["train", "sft", "evolve", "dpo", "eval", "export", "play", "env", "data", "models"]),
        (["train"], ["--env_name", "--num_servers", "--base_port", "--data_dir", "--model", "--exp_name_suffix"]),
        (["sft"], ["--output", "--data"]),
        (["eval"], ["--policy", "--split", "--json"]),
        (["export"], ["--output", "--merge-lora", "--best"]),
        (["play"], ["--task"]),
        (["env", "serve"], ["--port", "--host", "--max-sessions", "--idle-seconds", "--step-seconds", "babyai"]),
        (["data", "build"], ["--train", "--options"]),
        (["models", "get"], ["NAME", "--dir"]),
    ],
)
def test_help_names_what_there_is(verb, told):
    result = subprocess.run([COMMAND, *verb, "--help"], capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    assert all(word in result.stdout for word in told), result.stdout


def test_the_command_line_imports_nothing_heavy_before_it_must():
    code = "import sys, openmanus_rl.cli.main; print(sorted({'torch', 'transformers', 'pyarrow'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert result.stdout == "[]\n"


def test_a_missing_package_is_named_with_how_to_install_it():
    """Where only worlds are served, torch is not installed."""
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['openmanus-rl', 'train']; "
    code += "from openmanus_rl.cli.main import main; main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert result.returncode == 2
    assert result.stderr.startswith("openmanus-rl: error: torch is not installed.\n")
    assert "scripts/setup.sh train" in result.stderr


def test_the_printed_config_loads_and_is_a_preset(cli, tmp_path):
    printed = assert_done(cli("train", "--algorithm", "ppo", "--print-config", "trainer.seed=5")).out
    config = config_from_dict(yaml.safe_load(printed))
    assert config.trainer.seed == 5
    preset = tmp_path / "printed.yaml"
    preset.write_text(printed)
    assert load_config(preset) == config
    assert_done(cli("train", "--config", str(preset), "--print-config"))


def test_flags_are_overrides_whatever_they_look_like(cli):
    flags = ["--env_name", "wordle", "--num_servers", "2", "--base_port", "40001", "--data_dir", "7", "--model", "1e5"]
    printed = assert_done(cli("train", *flags, "--exp_name_suffix", "7", "--print-config")).out
    config = config_from_dict(yaml.safe_load(printed))
    assert (config.env.name, config.env.num_servers, config.env.base_port) == ("wordle", 2, 40001)
    assert (config.data.dir, config.model.path, config.trainer.name_suffix) == ("7", "1e5", "-7")


def test_env_list_shows_every_world(cli):
    shown = assert_done(cli("env", "list")).out
    assert all(world in shown for world in ("maze", "textcraft", "wordle"))


def test_data_is_built_and_inspected(cli, tmp_path):
    counts = ["--train", "8", "--validation", "4", "--test", "2"]
    built = assert_done(cli("data", "build", "maze", "--data_dir", str(tmp_path), *counts, "--options", '{"size": 3}'))
    assert built.out.splitlines() == [
        f"{tmp_path}/maze/train.parquet: 8 tasks",
        f"{tmp_path}/maze/validation.parquet: 4 tasks",
        f"{tmp_path}/maze/test.parquet: 2 tasks",
    ]
    shown = assert_done(cli("data", "inspect", f"{tmp_path}/maze/train.parquet", "--examples", "1")).out
    assert "8 rows" in shown
    assert '"size": 3' in shown
    assert shown.count("maze_") == 1


def test_data_is_built_in_the_sizes_of_agentgym(cli, tmp_path):
    built = assert_done(cli("data", "build", "todo", "--data_dir", str(tmp_path), "--agentgym", "--validation", "4"))
    assert [line.partition(": ")[2] for line in built.out.splitlines()] == ["135 tasks", "4 tasks", "20 tasks"]


def test_a_world_is_served_until_ctrl_c(start_cli):
    server = start_cli("env", "serve", "maze", "--port", "0")
    wait_until(lambda: "is served at" in server.out, PATIENCE, "the address")
    url = server.out.split()[-1]
    wait_until(lambda: _answers(f"{url}/health"), PATIENCE, "health")
    server.send(signal.SIGINT)
    result = server.wait()
    assert result.code == 0
    assert "Traceback" not in result.err


def test_the_limits_of_a_server_are_set_where_it_is_started(start_cli):
    server = start_cli("env", "serve", "maze", "--port", "0", "--max-sessions", "3")
    wait_until(lambda: "is served at" in server.out, PATIENCE, "the address")
    with urllib.request.urlopen(f"{server.out.split()[-1]}/health", timeout=60) as response:
        assert json.loads(response.read())["max_sessions"] == 3


def test_a_token_is_not_on_the_command_line_of_a_world_s_own_python(monkeypatch):
    """Everybody on the machine can read a process's arguments."""
    told = []
    monkeypatch.setattr("openmanus_rl.cli.env.python_of", lambda name: "/elsewhere/python")
    monkeypatch.setattr("os.execv", lambda python, arguments: told.append((arguments, os.environ[TOKEN_VARIABLE])))
    monkeypatch.setattr("openmanus_rl.cli.env.serve_main", lambda arguments: 0)
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    assert CliRunner().invoke(env_app, ["serve", "maze"]).exit_code == 0
    assert CliRunner().invoke(env_app, ["serve", "maze", "--token", "other"]).exit_code == 0
    assert [token for _, token in told] == ["s3cret", "other"]
    assert not any("s3cret" in word or "other" in word for arguments, _ in told for word in arguments)


def _answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_sft_makes_a_model_from_the_expert_and_again_from_what_it_kept(cli, place, tmp_path):
    model = tmp_path / "first"
    common = ["--config", str(place.grpo), "warm_start.epochs=1", "trainer.threads=1"]
    data = ["--data_dir", str(place.shared / "data"), "warm_start.demonstrations=16"]
    assert_done(cli("sft", "--output", str(model), *common, *data))
    kept = model / "demonstrations.parquet"
    assert "16 rows" in assert_done(cli("data", "inspect", str(kept), "--examples", "0")).out
    again = tmp_path / "second"
    assert_done(cli("sft", "--output", str(again), "--data", str(kept), *common))
    weights = [directory / "model/model.safetensors" for directory in (model, again)]
    assert weights[0].read_bytes() == weights[1].read_bytes(), "the same demonstrations and seed give the same model"
    longer = tmp_path / "third"
    assert_done(cli("sft", "--output", str(longer), "--data", str(kept), "--model", str(model / "model"), *common))
    assert weights[0].read_bytes() != (longer / "model/model.safetensors").read_bytes()


def test_chance_and_the_expert_are_measured(cli):
    chance = json.loads(assert_done(cli("eval", "--policy", "random", "--n", "40", "--json", "env.options.size=3")).out)
    expert = assert_done(cli("eval", "--policy", "expert", "--n", "40", "--split", "test")).out
    assert chance["policy"] == "random"
    assert chance["success"]["n"] == 40
    assert 0 < chance["success"]["rate"] < 1
    assert expert.startswith("maze, test tasks, expert: success 100.0 % [")


def test_eval_writes_the_episodes_it_played(cli, grpo_run, tmp_path):
    shown = assert_done(cli("eval", str(grpo_run), "--n", "3", "--split", "test", "--episodes", str(tmp_path))).out
    assert shown.startswith(f"maze, test tasks, {grpo_run}: success ")
    episodes = json_lines(tmp_path / "validation_step_000000.jsonl")
    assert len(episodes) == 3
    assert {episode["task"]["extra"]["split"] for episode in episodes} == {"test"}


def test_a_model_directory_is_evaluated_by_itself(cli, grpo_run, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(grpo_run / "initial_model", model)
    words = ["env.options.size=3", "agent.max_turns=2", "model.max_context=512", "trainer.threads=1"]
    result = assert_done(cli("eval", str(model), "--n", "4", "--data_dir", str(tmp_path / "data"), *words))
    assert "n=4" in result.out
