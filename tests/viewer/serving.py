"""The page's server in a thread of a test."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
