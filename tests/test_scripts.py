"""The shell scripts, run with a stand-in for Python and pip that writes down how it was called."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOOLS = ("bash", "env", "dirname", "cat", "cksum", "mkdir", "rm", "cp", "tail", "grep", "sleep")
FLAGS = ("--env_name", "--num_servers", "--base_port", "--data_dir", "--model", "--exp_name_suffix", "--help")

# Knows the calls that setup.sh makes: version checks, `-m venv`, `-m pip`.
STAND_IN = """#!/usr/bin/env bash
case "$*" in
    --version) echo "Python $VERSION" ;;
    "-c "*) [ "$VERSION" != 3.9.2 ] ;;
    "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && cp "$RECORDER" .venv/bin/openmanus-rl ;;
    "-m pip --version") ;;
    "-m pip install "*)
        call="$*"
        echo "${call##*constraints.txt }" >>"$RECORD"
        sleep "${PIP_SECONDS:-0}"
        [ -z "${PIP_ERROR:-}" ] || { echo "ERROR: $PIP_ERROR"; exit 1; } ;;
esac
"""
RECORDER = """#!/usr/bin/env bash
printf '%s|' "$$" "${0##*/}" "$@"
echo
[ "${0##*/}" != "${FAILING:-}" ]
"""


class Clone:
    """A copy of the scripts in an otherwise empty repository, and a PATH with few programs on it."""

    def __init__(self, place: Path) -> None:
        self.root = place / "clone"
        self.record = place / "record"
        self.programs = place / "programs"
        self.root.mkdir()
        self.programs.mkdir()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        for name in ("train_grpo.sh", "train_ppo.sh", "test.sh", "constraints.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)
        for name in TOOLS:
            (self.programs / name).symlink_to(shutil.which(name))
        self.recorder = self.write_program(place / "recorder", RECORDER)

    def write_program(self, path: Path, text: str) -> Path:
        path.write_text(text)
        path.chmod(0o755)
        return path

    def install_python(self, name: str = "python3.11") -> None:
        self.write_program(self.programs / name, STAND_IN)

    def start(self, script, *arguments, **variables) -> subprocess.Popen:
        environment = {
            "PATH": str(self.programs),
            "RECORD": str(self.record),
            "RECORDER": str(self.recorder),
            "VERSION": "3.11.7",
            **variables,
        }
        return subprocess.Popen(
            [self.root / script, *arguments],
            env=environment,
            cwd=self.programs,  # not the root: scripts work from anywhere
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, script, *arguments, **variables) -> subprocess.CompletedProcess:
        process = self.start(script, *arguments, **variables)
        output, errors = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.pid, process.returncode, output, errors)

    def pip_calls(self) -> list[str]:
        """What was installed since the last look."""
        calls = self.record.read_text().splitlines() if self.record.exists() else []
        self.record.unlink(missing_ok=True)
        return calls


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_help_needs_no_python_and_installs_nothing(clone, algorithm):
    result = clone.run(f"train_{algorithm}.sh", "--env_name", "wordle", "--help")
    assert result.returncode == 0, result.stderr
    assert f"./train_{algorithm}.sh" in result.stdout
    assert algorithm.upper() in result.stdout
    for flag in FLAGS:
        assert f"  {flag}" in result.stdout
    assert "key=value" in result.stdout
    assert not (clone.root / ".venv").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs system packages")
@pytest.mark.parametrize("ending", ["exit 0", "exit 1"])
def test_dev_brings_the_browser_that_the_pages_tests_need_and_does_without_where_that_fails(clone, ending):
    clone.install_python()
    clone.write_program(clone.programs / "apt-get", f'#!/usr/bin/env bash\necho "apt-get $*" >>"$RECORD"\n{ending}\n')
    assert clone.run("scripts/setup.sh", "train").returncode == 0
    assert not any(call.startswith("apt-get") for call in clone.pip_calls())
    assert clone.run("scripts/setup.sh", "dev").returncode == 0
    installed = [call for call in clone.pip_calls() if call.startswith("apt-get install")]
    assert all("chromium" in call for call in installed)
    assert len(installed) == (1 if ending == "exit 0" else 0)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_everything_else_goes_to_the_trainer_as_it_was_given(clone, algorithm):
    clone.install_python()
    given = ["--no_such_flag", "two words", "trainer.seed=7", "*"]
    result = clone.run(f"train_{algorithm}.sh", *given)
    assert result.returncode == 0, result.stderr
    pid, *call = result.stdout.rstrip("|\n").split("|")
    assert call == ["openmanus-rl", "train", "--algorithm", algorithm, *given]
    assert int(pid) == result.args, "the trainer takes the place of the script, so that signals reach it"


def test_an_old_python_is_refused_with_what_to_install(clone):
    clone.install_python("python3")
    result = clone.run("scripts/setup.sh", "train", VERSION="3.9.2")
    assert result.returncode == 1
    assert "setup: error: Python 3.11 or newer is needed; found: Python 3.9.2" in result.stderr
    assert "apt install python3.11" in result.stderr
    assert not (clone.root / ".venv").exists()


def test_no_python_at_all_is_said(clone):
    assert "found: none" in clone.run("scripts/setup.sh", "train").stderr


def test_torch_is_installed_first_and_the_package_with_its_extras_then(clone):
    clone.install_python("python3")
    assert clone.run("scripts/setup.sh", "train").returncode == 0
    assert clone.pip_calls() == ["torch", "--no-build-isolation -e .[train]"]


def test_a_second_call_installs_nothing_and_says_nothing(clone):
    clone.install_python()
    clone.run("scripts/setup.sh", "train")
    clone.pip_calls()
    result = clone.run("scripts/setup.sh", "train")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert clone.pip_calls() == []


def test_dev_is_enough_for_train_but_not_the_other_way_round(clone):
    clone.install_python()
    clone.run("scripts/setup.sh", "train")
    clone.pip_calls()
    clone.run("scripts/setup.sh", "dev")
    assert clone.pip_calls() == ["torch", "--no-build-isolation -e .[train,vllm,dev]"]
    clone.run("scripts/setup.sh", "train")
    assert clone.pip_calls() == []


@pytest.mark.parametrize("changed", ["constraints.txt", "pyproject.toml"])
def test_changed_pins_or_dependencies_are_installed(clone, changed):
    clone.install_python()
    clone.run("scripts/setup.sh", "train")
    clone.pip_calls()
    with (clone.root / changed).open("a") as file:
        file.write("# changed\n")
    clone.run("scripts/setup.sh", "train")
    assert len(clone.pip_calls()) == 2


def test_a_moved_clone_is_installed_again(clone):
    clone.install_python()
    clone.run("scripts/setup.sh", "train")
    clone.pip_calls()
    clone.root = clone.root.rename(clone.root.with_name("moved"))
    clone.run("scripts/setup.sh", "train")
    assert len(clone.pip_calls()) == 2


def test_a_failed_installation_says_why_and_is_tried_again(clone):
    clone.install_python()
    result = clone.run("scripts/setup.sh", "train", PIP_ERROR="No matching distribution found for torch==2.13.0")
    assert result.returncode == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("setup: error:")]
    assert "ERROR: No matching distribution found for torch==2.13.0" in line
    assert ".cache/setup.log" in result.stderr
    clone.pip_calls()
    assert clone.run("scripts/setup.sh", "train").returncode == 0
    assert len(clone.pip_calls()) == 2


def test_an_interrupted_installation_is_started_again(clone):
    clone.install_python()
    process = clone.start("scripts/setup.sh", "train", PIP_SECONDS="500")
    deadline = time.monotonic() + 240
    while not clone.record.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "interrupted" in errors
    clone.pip_calls()
    clone.run("scripts/setup.sh", "train")
    assert len(clone.pip_calls()) == 2


def test_an_unknown_mode_is_refused(clone):
    result = clone.run("scripts/setup.sh", "prod")
    assert result.returncode == 1
    assert "'train', 'vllm' or 'dev', not 'prod'" in result.stderr


CHECKS = ["ruff", "ruff", "lint-imports", "mypy", "pytest"]


@pytest.fixture
def checked(clone):
    """A clone whose virtualenv has a recorder in place of every check."""
    clone.install_python()
    assert clone.run("scripts/setup.sh", "dev").returncode == 0
    for name in CHECKS:
        shutil.copy(clone.recorder, clone.root / ".venv" / "bin" / name)
    return clone


def calls(result) -> list[list[str]]:
    return [line.rstrip("|").split("|")[1:] for line in result.stdout.splitlines() if "|" in line]


def test_all_checks_run_and_slow_tests_do_not(checked):
    result = checked.run("test.sh", "tests/envs", "-x")
    assert result.returncode == 0, result.stderr
    assert [name for name, *_ in calls(result)] == CHECKS
    assert calls(result)[-1] == ["pytest", "-n", "2", "--dist", "loadfile", "-m", "not slow", "tests/envs", "-x"]


def test_all_adds_the_slow_tests(checked):
    assert calls(checked.run("test.sh", "--all"))[-1] == ["pytest"]


def test_the_first_failing_check_ends_it_and_is_named(checked):
    result = checked.run("test.sh", FAILING="lint-imports")
    assert result.returncode == 1
    assert [name for name, *_ in calls(result)] == CHECKS[:3]
    assert "imports failed" in result.stderr


def test_continuous_integration_runs_the_same_checks(checked):
    (checked.root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", checked.root / ".ci")
    assert [name for name, *_ in calls(checked.run(".ci/run"))] == CHECKS
