"""How long the parts of a training step took, under the names that users of verl know."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Timings:
    """Seconds by part; a part that is entered twice is added up, and parts may lie within each other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] += time.monotonic() - began

    def rest_of(self, whole: str, *beside: str) -> float:
        """Seconds of a part that lie in no other part; those named `beside` do not lie within it."""
        return self.seconds[whole] - sum(
            seconds for name, seconds in self.seconds.items() if name not in (whole, *beside)
        )

    def metrics(self) -> dict[str, float]:
        """`timing_s/<part>` for each part so far."""
        return {f"timing_s/{name}": seconds for name, seconds in self.seconds.items()}
