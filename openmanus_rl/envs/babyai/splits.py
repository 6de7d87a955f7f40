"""Which items belong to which split, as a table, so that they can be listed without `minigrid` and at once.

A line of `splits.txt` is a seed, a place in it a level: `t` train, `v` validation, `e` test; `-` stands for a mission
that cannot be won, or that is the same as one before. It is `make_table(SEEDS)`, line by line.
"""

from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

from openmanus_rl.envs.babyai.expert import knows_a_way
from openmanus_rl.envs.babyai.levels import LEVELS, can_be_won, content_of, make_level
from openmanus_rl.envs.base import Split, split_of, stable_hash

SEEDS = 300
LETTERS: dict[Split, str] = {"train": "t", "validation": "v", "test": "e"}


@lru_cache
def table() -> tuple[str, ...]:
    """The committed lines."""
    return tuple((files(__package__) / "splits.txt").read_text(encoding="utf-8").split())


def make_table(seeds: int) -> Iterator[str]:
    """The lines for the first seeds, by making every level."""
    met: set[int] = set()
    for seed in range(seeds):
        yield "".join(_letter(name, seed, met) for name in LEVELS)


def _letter(name: str, seed: int, met: set[int]) -> str:
    level = make_level(name, seed)
    content = content_of(level)
    if stable_hash(content) in met or not can_be_won(level) or not knows_a_way(level):
        return "-"
    met.add(stable_hash(content))
    return LETTERS[split_of(content)]
