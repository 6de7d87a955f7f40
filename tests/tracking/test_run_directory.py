import json
import os
import subprocess
import sys

import pytest
import yaml

from openmanus_rl.config.load import load_config
from openmanus_rl.errors import UserError
from openmanus_rl.files import write_json, write_text
from openmanus_rl.tracking.checkpoints import CheckpointStore
from openmanus_rl.tracking.run_directory import RunDirectory, choose_run_directory
from openmanus_rl.tracking.versions import describe_commit


def config(*overrides):
    return load_config(None, overrides)


def start_run(root, resume="auto", overrides=(), checkpoint=True, finished=False):
    """What a run does to its directory, up to a kill or to its end."""
    choice = choose_run_directory(root, "maze-grpo", config(*overrides), resume)
    with RunDirectory(choice.path) as run:
        run.write_config(config(*overrides))
        if checkpoint:
            store = CheckpointStore(run.checkpoints, keep=1)
            store.save(10, lambda path: lambda: None)
            store.close()
        if finished:
            run.write_summary({"seed": 0})
    return choice


def test_a_directory_in_use_names_the_process_that_holds_it(tmp_path):
    with RunDirectory(tmp_path / "run"):
        other = (
            "import sys, pathlib; from openmanus_rl.tracking.run_directory import RunDirectory\n"
            "RunDirectory(pathlib.Path(sys.argv[1]))"
        )
        result = subprocess.run([sys.executable, "-c", other, tmp_path / "run"], capture_output=True, text=True)
    assert f"is in use by another run (process {os.getpid()})" in result.stderr
    assert "UserError" in result.stderr


def test_a_closed_directory_can_be_opened_again(tmp_path):
    RunDirectory(tmp_path / "run").close()
    RunDirectory(tmp_path / "run").close()


def test_a_run_directory_holds_its_config_versions_and_events(tmp_path):
    with RunDirectory(tmp_path / "run") as run:
        run.begin(config("trainer.seed=7"))
        run.log_event("checkpoint", step=10)
    assert yaml.safe_load(run.config.read_text())["trainer"]["seed"] == 7
    versions = json.loads(run.versions.read_text())
    assert versions["packages"]["torch"].startswith("2.")
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["seeds"] == {"run": 7}
    events = [json.loads(line) for line in run.events.read_text().splitlines()]
    assert [event["event"] for event in events] == ["started", "checkpoint"]
    assert events[1]["step"] == 10


def test_the_commit_is_told_only_for_the_root_of_a_repository(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.com"]
    assert describe_commit(tmp_path) is None
    subprocess.run([*git, "init", "-q"], check=True)
    assert describe_commit(tmp_path) is None  # no commit yet
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    clean = describe_commit(tmp_path)
    assert len(clean["commit"]) == 40
    assert not clean["changed"]
    (tmp_path / "new.py").touch()
    assert describe_commit(tmp_path) == {**clean, "changed": True}
    (tmp_path / "inner").mkdir()
    assert describe_commit(tmp_path / "inner") is None


def test_auto_continues_an_unfinished_run_of_the_same_config(tmp_path):
    first = start_run(tmp_path)
    assert (first.path.name, first.continues) == ("maze-grpo", False)
    assert start_run(tmp_path) == (first.path, True)


def test_auto_continues_the_newest_of_several(tmp_path):
    for _ in range(11):
        start_run(tmp_path, resume="never")
    assert start_run(tmp_path).path.name == "maze-grpo-11"


def test_how_a_run_was_started_does_not_keep_it_from_being_continued(tmp_path):
    started = start_run(tmp_path, resume="never", overrides=["trainer.resume=never"])
    assert start_run(tmp_path) == (started.path, True)


def test_auto_goes_on_with_a_run_that_was_killed_before_its_first_checkpoint(tmp_path):
    start_run(tmp_path, checkpoint=False)
    choice = choose_run_directory(tmp_path, "maze-grpo", config(), "auto")
    assert (choice.path.name, choice.continues) == ("maze-grpo", True)


@pytest.mark.parametrize(
    "earlier",
    [{"finished": True}, {"overrides": ["trainer.seed=1"]}],
    ids=["finished", "other config"],
)
def test_auto_starts_anew_beside_a_run_that_cannot_be_continued(tmp_path, earlier):
    start_run(tmp_path, **earlier)
    choice = choose_run_directory(tmp_path, "maze-grpo", config(), "auto")
    assert (choice.path.name, choice.continues) == ("maze-grpo-2", False)


def test_never_starts_anew_beside_a_run_that_could_be_continued(tmp_path):
    start_run(tmp_path)
    assert start_run(tmp_path, resume="never") == (tmp_path / "maze-grpo-2", False)


def test_runs_of_a_longer_name_are_not_this_runs(tmp_path):
    (tmp_path / "maze-grpo-long").mkdir()
    (tmp_path / "maze-grpo-long-7").mkdir()
    assert start_run(tmp_path).path.name == "maze-grpo"


def test_a_path_is_continued_whatever_its_config(tmp_path):
    path = start_run(tmp_path, finished=True).path
    choice = choose_run_directory(tmp_path, "other", config("trainer.steps=99"), str(path))
    assert choice == (path, True)


def test_a_path_that_is_no_run_directory_is_refused(tmp_path):
    with pytest.raises(UserError, match="nowhere is not a run directory"):
        choose_run_directory(tmp_path, "maze-grpo", config(), str(tmp_path / "nowhere"))


def test_a_path_without_a_checkpoint_is_refused(tmp_path):
    path = start_run(tmp_path, checkpoint=False).path
    with pytest.raises(UserError, match="has no checkpoint"):
        choose_run_directory(tmp_path, "maze-grpo", config(), str(path))


def test_a_failed_write_leaves_the_old_content(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"seed": 1})
    with pytest.raises(TypeError):
        write_json(path, {"seed": object()})
    assert json.loads(path.read_text()) == {"seed": 1}


def test_a_write_killed_before_its_rename_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    write_text(path, "old")

    def kill(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        write_text(path, "new")
    assert path.read_text() == "old"
