"""What tests of the trainer and the command line share: a place with data and warm-started tiny models."""

import os
import signal

# Before torch is imported anywhere: tests start processes beside each other, and threads would get in their way.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from cli_process import CliProcess, Result
from hypothesis import HealthCheck, settings
from tiny_runs import TinyPlace

# The same examples every time, however long one takes.
settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("steady")


def pytest_configure():
    """A shell that starts the tests in the background has them ignore Ctrl-C, and all that they start with them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _forget_where_the_tests_run()


def _forget_where_the_tests_run():
    """No test depends on a terminal's width and colours, on a proxy, or on a token or Ray cluster of the user's."""
    os.environ["COLUMNS"] = "80"
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    for name in ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE", "GITHUB_ACTIONS"):
        os.environ.pop(name, None)
    for name in ("OPENMANUS_RL_ENV_TOKEN", "RAY_ADDRESS"):
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def shared_place(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def place(shared_place, tmp_path):
    """Everything that is slow to make is shared; the runs are the test's own."""
    return TinyPlace(shared_place, tmp_path / "runs")


@pytest.fixture(scope="session")
def grpo_run(shared_place):
    """The directory of a finished GRPO run of three steps."""
    return _finished_run(TinyPlace(shared_place, shared_place / "finished"), "grpo")


@pytest.fixture(scope="session")
def ppo_run(shared_place):
    """The directory of a finished PPO run of three steps."""
    return _finished_run(TinyPlace(shared_place, shared_place / "finished"), "ppo")


def _finished_run(place, name):
    from openmanus_rl.trainer.run import train  # imports torch, which most tests do not

    return train(place.config(preset=getattr(place, name)))


@pytest.fixture
def start_cli(tmp_path):
    """Start `openmanus-rl` with these arguments; what still runs at the end of the test is killed."""
    started: list[CliProcess] = []

    def start(*arguments: str, stdin: str = "") -> CliProcess:
        started.append(CliProcess(arguments, tmp_path / "console", stdin))
        return started[-1]

    yield start
    for process in started:
        process.end()
        print(
            f"{process.arguments} ended with {process.process.exitcode}:\n{process.out}\n{process.err}"
        )  # pytest shows it if the test failed


@pytest.fixture
def cli(start_cli):
    """Run `openmanus-rl` with these arguments to its end."""

    def run(*arguments: str, stdin: str = "") -> Result:
        return start_cli(*arguments, stdin=stdin).wait()

    return run
