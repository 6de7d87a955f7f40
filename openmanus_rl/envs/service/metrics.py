"""What a server counts, and its `/metrics` in Prometheus' text format."""

import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Upper ends in seconds."""

FailureCause = Literal["hung", "crashed", "full"]
Ending = Literal["closed", "expired", "failed"]


class Latency:
    """How long calls took: a histogram."""

    def __init__(self) -> None:
        self.total = 0.0
        self.counts = [0] * (len(BUCKETS) + 1)

    def observe(self, seconds: float) -> None:
        self.total += seconds
        self.counts[bisect_left(BUCKETS, seconds)] += 1


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.steps = Latency()
        self.starts = Latency()
        self.opened = 0
        self.endings: Counter[Ending] = Counter()
        self.failures: Counter[FailureCause] = Counter()

    def text(self, sessions: int, max_sessions: int, hung: int, worker_bytes: int) -> str:
        """All of it, with what the caller knows."""
        lines = [
            *_metric("sessions", "gauge", "Open sessions.", {"": sessions}),
            *_metric("sessions_limit", "gauge", "Sessions that may be open.", {"": max_sessions}),
            *_metric("hung_worlds", "gauge", "Ended sessions whose world still holds a thread.", {"": hung}),
            *_metric("sessions_opened_total", "counter", "Sessions that were opened.", {"": self.opened}),
            *_metric(
                "sessions_ended_total",
                "counter",
                "Sessions that ended, by how.",
                {f'{{how="{how}"}}': self.endings[how] for how in ("closed", "expired", "failed")},
            ),
            *_metric(
                "failures_total",
                "counter",
                "Requests that failed by the world or the server.",
                {f'{{cause="{cause}"}}': self.failures[cause] for cause in ("hung", "crashed", "full")},
            ),
            *_histogram("start_seconds", "Time to start a task.", self.starts),
            *_histogram("step_seconds", "Time of a step.", self.steps),
            *_metric(
                "worker_memory_bytes",
                "gauge",
                "Resident memory of all processes below the server's.",
                {"": worker_bytes},
            ),
            "# HELP process_resident_memory_bytes Resident memory of the server's process.",
            "# TYPE process_resident_memory_bytes gauge",
            f"process_resident_memory_bytes {resident_bytes()}",
        ]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int:
    """Memory of this process."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def descendants_bytes() -> int:
    """Memory of the processes that this one started, and of those that they did: worlds' own, and Java's."""
    children: dict[int, list[tuple[int, int]]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text(errors="replace").partition(" (")
        except OSError:  # it has ended by now
            continue
        fields = rest.rpartition(")")[2].split()
        children.setdefault(int(fields[1]), []).append((int(name), int(fields[21])))
    pages, parents = 0, [os.getpid()]
    while parents:
        for pid, resident in children.get(parents.pop(), ()):
            pages += resident
            parents.append(pid)
    return pages * os.sysconf("SC_PAGE_SIZE")


def _metric(name: str, kind: str, what: str, values: dict[str, int]) -> Iterator[str]:
    name = f"openmanus_rl_env_{name}"
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{labels} {value}"


def _histogram(name: str, what: str, latency: Latency) -> Iterator[str]:
    name = f"openmanus_rl_env_{name}"
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} histogram"
    below = 0
    for bound, count in zip((*map(str, BUCKETS), "+Inf"), latency.counts, strict=True):
        below += count
        yield f'{name}_bucket{{le="{bound}"}} {below}'
    yield f"{name}_sum {latency.total:.6f}"
    yield f"{name}_count {below}"
