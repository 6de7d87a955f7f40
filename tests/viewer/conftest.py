"""A directory of two runs, made once, and its page on a real port."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_runs import make_run

from openmanus_rl.viewer.serve import ViewerServer


@contextmanager
def serving(root: Path, **options) -> Iterator[ViewerServer]:
    server = ViewerServer(root, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(timeout=20)


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
