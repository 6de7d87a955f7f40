"""Ctrl-C and SIGTERM while a run trains: the first ends it after the present step, a second one at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether somebody wants the run to end after the present step."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.made = False
        self._say = say

    @contextmanager
    def by_signal(self, interrupt: Callable[[], bool]) -> Iterator[None]:
        """For the time of the block. At the second signal `interrupt` ends what is played; False if nothing is."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals go to the main thread, which belongs to someone else
            return

        def handle(signum: int, frame: FrameType | None) -> None:
            if self.made:
                if interrupt():
                    return
                raise KeyboardInterrupt
            self.made = True
            # In a thread of its own: the signal may have come in the middle of a line that is being written.
            text = "stopping after this step; press Ctrl-C again to stop at once"
            threading.Thread(target=self._say, args=[text], daemon=True).start()

        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
