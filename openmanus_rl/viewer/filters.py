"""Which episodes a list shows, in which order: the words of its address, checked."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.errors import UserError, did_you_mean
from openmanus_rl.viewer.episodes import Row

OUTCOMES: dict[str, Callable[[Row], bool]] = {
    "success": lambda row: row.entry.success and is_sample(row),
    "miss": lambda row: not row.entry.success and is_sample(row),
    "failed": lambda row: not is_sample(row),
}
"""A failed episode is not a sample, so it is no miss either."""

ORDERS: dict[str, Callable[[Row], Any]] = {
    "step": lambda row: row.step,
    "return": lambda row: row.entry.episode_return,
    "turns": lambda row: row.entry.turns,
    "tokens": lambda row: row.entry.tokens,
    "item_id": lambda row: row.entry.item_id,
}
_NO_SAMPLES = {reason.value for reason in StopReason if not reason.is_sample}
_NOT_PLAYED = {reason.value for reason in StopReason if not reason.is_played}


@dataclass(frozen=True)
class Filter:
    """What a row must be like; what is None or empty is not asked."""

    kind: str = ""
    outcome: str = ""
    stop_reason: str = ""
    env: str = ""
    difficulty: str = ""
    item: str = ""
    """A part of the item id, whatever its case."""
    trained: str = ""
    """yes or no."""
    first_step: float | None = None
    last_step: float | None = None
    lowest_return: float | None = None
    highest_return: float | None = None
    group: int | None = None

    def choose(self, rows: Sequence[Row]) -> list[Row]:
        """The rows that fit, in the order they came."""
        tests = self._tests()
        return [row for row in rows if all(test(row) for test in tests)]

    def _tests(self) -> list[Callable[[Row], bool]]:
        tests: list[Callable[[Row], bool]] = []
        if self.kind:
            tests.append(lambda row: row.kind == self.kind)
        if self.outcome:
            tests.append(_named(OUTCOMES, self.outcome, "outcome"))
        for name in ("stop_reason", "env", "difficulty"):
            if wanted := getattr(self, name):
                tests.append(_says(name, wanted))
        if self.item:
            item = self.item.casefold()
            tests.append(lambda row: item in row.entry.item_id.casefold())
        if self.trained:
            tests.append(lambda row: row.entry.trained == (self.trained == "yes"))
        if self.group is not None:
            tests.append(lambda row: row.entry.group == self.group)
        if self.first_step is not None or self.last_step is not None:
            tests.append(_between(lambda row: row.step, self.first_step, self.last_step))
        if self.lowest_return is not None or self.highest_return is not None:
            tests.append(_between(lambda row: row.entry.episode_return, self.lowest_return, self.highest_return))
        return tests


def filter_from(words: Mapping[str, str]) -> Filter:
    """The filter that an address or a command line means; a number that is none is an error."""
    values: dict[str, Any] = {}
    for name, text in words.items():
        if name not in Filter.__dataclass_fields__ or not text:
            continue
        values[name] = _number(name, text) if name in _NUMBERS else text
    if "group" in values:
        if not math.isfinite(values["group"]):
            raise UserError(f"group={words['group']} is not a whole number.")
        values["group"] = int(values["group"])
    return Filter(**values)


def in_order(rows: list[Row], order: str, descending: bool) -> list[Row]:
    """Sorted by one of `ORDERS`; rows that are equal in it stay as they were."""
    return sorted(rows, key=_named(ORDERS, order, "order"), reverse=descending)


def is_sample(row: Row) -> bool:
    return row.entry.stop_reason not in _NO_SAMPLES


def was_played(row: Row) -> bool:
    """Whether the world knows how the task went: a sample, or an episode that only its score function failed."""
    return row.entry.stop_reason not in _NOT_PLAYED


_NUMBERS = {"first_step", "last_step", "lowest_return", "highest_return", "group"}


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise UserError(f"{name}={text} is not a number.") from error


def _named(known: Mapping[str, Callable[[Row], Any]], name: str, what: str) -> Callable[[Row], Any]:
    if name not in known:
        raise UserError(f"{what}={name} is not known. {did_you_mean(name, known)}")
    return known[name]


def _says(name: str, wanted: str) -> Callable[[Row], bool]:
    return lambda row: getattr(row.entry, name) == wanted


def _between(value: Callable[[Row], float], low: float | None, high: float | None) -> Callable[[Row], bool]:
    return lambda row: (low is None or value(row) >= low) and (high is None or value(row) <= high)
