"""A directory of two runs, made once, and its page on a real port."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import Complaints, chromium
from made_runs import make_run
from serving import serving

from openmanus_rl.viewer.serve import ViewerServer


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished-looking runs that nobody may change."""
    root = tmp_path_factory.mktemp("viewed") / "runs"
    make_run(root / "maze-grpo")
    make_run(root / "maze-ppo", final_success=0.25, seed=1)
    return root


@pytest.fixture
def serve() -> Iterator[Callable[..., ViewerServer]]:
    """Start a page; it ends with the test."""
    open_servers = []

    def start(root: Path, **options) -> ViewerServer:
        manager = serving(root, **options)
        open_servers.append(manager)
        return manager.__enter__()

    yield start
    for manager in open_servers:
        manager.__exit__(None, None, None)


@pytest.fixture(scope="module")
def browser():
    """For one file of tests: while it is open an event loop runs in this thread, and no other could."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def url(runs):
    """The page of `runs`, for all tests that only look."""
    with serving(runs) as server:
        yield server.url


@pytest.fixture
def page(browser, serve):
    """A fresh page; whatever it complains of fails the test. It is closed before its server is."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(15_000)
    opened = context.new_page()
    complaints = Complaints(opened)
    yield opened
    context.close()
    assert complaints.heard == []
