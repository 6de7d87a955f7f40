"""A run's metrics as columns that grow with the file, and thinned out for a chart."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openmanus_rl.viewer.tail import Tail

Column = list[float | None]


class MetricColumns:
    """`metrics.jsonl`, one list for each metric, each as long as there are lines."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self._forget()

    def refresh(self) -> None:
        """Read what was written since the last time."""
        replaced, lines = self.tail.new_lines()
        if replaced:
            self._forget()
        for line in lines:
            self._add(line)
        for column in self.columns.values():
            column.extend([None] * (len(self.steps) - len(column)))

    def last(self, name: str) -> float | None:
        """The newest value of a metric that is not written at every step."""
        return next((value for value in reversed(self.columns.get(name, [])) if value is not None), None)

    def last_step_of(self, name: str) -> int | None:
        """The step at which a metric was last written."""
        values = zip(reversed(self.steps), reversed(self.columns.get(name, [])), strict=False)
        return next((step for step, value in values if value is not None), None)

    def chart(self, names: Sequence[str], points: int, low: float, high: float) -> dict[str, Any]:
        """Steps, times and the named columns between two steps, as means over equal shares if there are too many.

        A metric that is written now and then keeps every value: thinning would move it.
        """
        rows = [row for row, step in enumerate(self.steps) if low <= step <= high]
        share = max(1, -(-len(rows) // points))
        sparse = {name: [row for row in rows if self.columns[name][row] is not None] for name in self._known(names)}
        buckets = [rows[start : start + share] for start in range(0, len(rows), share)]
        dense = [name for name, kept in sparse.items() if len(kept) * 2 > len(rows)]
        return {
            "share": share,
            "step": [self.steps[bucket[-1]] for bucket in buckets],
            "time": [self.times[bucket[-1]] for bucket in buckets],
            "columns": {name: [_mean(self.columns[name], bucket) for bucket in buckets] for name in dense},
            "sparse": {
                name: {
                    "step": [self.steps[row] for row in kept],
                    "time": [self.times[row] for row in kept],
                    "values": [self.columns[name][row] for row in kept],
                }
                for name, kept in sparse.items()
                if name not in dense
            },
        }

    def _known(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in self.columns]

    def _forget(self) -> None:
        self.steps: list[int] = []
        self.times: list[float | None] = []
        self.columns: dict[str, Column] = {}
        self.broken_lines = 0

    def _add(self, line: bytes) -> None:
        try:
            values = json.loads(line)
            step, time = int(values.pop("step")), _number(values.pop("time", None))
            numbers = {name: _number(value) for name, value in values.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            self.broken_lines += 1
            return
        self.steps.append(step)
        self.times.append(time)
        row = len(self.steps) - 1
        for name, value in numbers.items():
            column = self.columns.setdefault(name, [])
            column.extend([None] * (row - len(column)))
            column.append(value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _mean(column: Column, rows: Sequence[int]) -> float | None:
    values = [value for row in rows if (value := column[row]) is not None]
    return sum(values) / len(values) if values else None
