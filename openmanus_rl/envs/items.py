"""Item ids and seeded chance, the same on every machine: what the built-in worlds make their tasks from."""

import random
import re
from collections.abc import Sequence
from typing import TypeVar

from openmanus_rl.envs.base import stable_hash
from openmanus_rl.errors import UserError

T = TypeVar("T")


def item_number(world: str, item_id: str) -> int:
    """The n of `<world>_<n>`. Each number has one spelling, so that an id is also a name for its task."""
    match = re.fullmatch(rf"{re.escape(world)}_(0|[1-9][0-9]{{0,17}})", item_id)
    if match is None:
        raise UserError(
            f"{item_id!r} is not an item of {world}",
            f"An item id is {world}_<n>, where n is a whole number from 0 on: for example {world}_7.",
        )
    return int(match[1])


def listed_names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names that an option lists; a single name needs no list around it."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def seeded(text: str) -> random.Random:
    """A generator that depends on `text` only. Use its `random()`: Python promises that sequence across versions."""
    return random.Random(stable_hash(text))


def pick(choices: Sequence[T], uniform: float) -> T:
    """The choice that `uniform` in [0, 1) falls on, all equally likely."""
    return choices[int(uniform * len(choices))]


def shuffled(things: Sequence[T], chance: random.Random) -> list[T]:
    """The things in a random order (Fisher–Yates on `random()`, since `shuffle` may change between versions)."""
    order = list(things)
    for last in range(len(order) - 1, 0, -1):
        other = int(chance.random() * (last + 1))
        order[last], order[other] = order[other], order[last]
    return order


def in_doubling_steps(what: str, number: int) -> str:
    """A name for the range that a number of things lies in: `steps_1_to_2`, `steps_3_to_4`, `steps_5_to_8`, …"""
    most = max(2, 1 << (number - 1).bit_length())
    return f"{what}_{1 if most == 2 else most // 2 + 1}_to_{most}"
