"""Metrics: one line of JSON a step, exactly once, whatever was killed and resumed in between."""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from openmanus_rl.files import drop_cut_off_line, write_text


class MetricsLog:
    """Appends `{"step": …, "time": …, …}` lines. A value that is not finite becomes null: JSON has no NaN."""

    def __init__(self, path: Path) -> None:
        self.path = path
        drop_cut_off_line(path)
        self._file = path.open("a", encoding="utf-8")

    def append(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one step's line; a kill right afterwards does not lose it."""
        line = {"step": step, "time": time.time(), **{name: _finite(value) for name, value in metrics.items()}}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def truncate_after(self, step: int) -> None:
        """Drop the lines of later steps, which a resumed run writes again."""
        kept = [line for line in read_metrics(self.path) if line["step"] <= step]
        self._file.close()
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = self.path.open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every whole line of a metrics file; a last line that was cut off is left out. No file: no lines."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def _finite(value: float) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
