"""What the agent sees: the square of cells before it, as far as walls and closed doors let it, and that in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openmanus_rl.envs.babyai.levels import Cell, Level, name_of, position

SIZE = 7
"""Cells on a side of the square: the agent stands in the middle of its last row."""
MIDDLE = SIZE // 2

DIRECTIONS: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""Right, down, left, up: turning right is the next one."""


@dataclass(frozen=True)
class Sight:
    """A cell in view, how far it lies ahead and to the right, and what is there."""

    ahead: int
    right: int
    thing: Any


@dataclass(frozen=True)
class View:
    """What is seen at one moment."""

    cells: Mapping[Cell, Sight]
    """All cells in view but the agent's own, the farthest row first."""
    names: Mapping[Cell, str]
    """Of the things in view, the nearest first, numbered where several have the same name: `red ball 2`."""


def look(level: Level) -> View:
    """The view from where the agent stands."""
    column, row = position(level)
    forward = DIRECTIONS[level.agent_dir]
    rightward = DIRECTIONS[(level.agent_dir + 1) % 4]
    grid = level.grid

    def cell_at(ahead: int, right: int) -> Cell:
        return (
            column + ahead * forward[0] + right * rightward[0],
            row + ahead * forward[1] + right * rightward[1],
        )

    rows: list[dict[Cell, Sight]] = []
    lit = [False] * SIZE
    lit[MIDDLE] = True
    for ahead in range(SIZE):
        cells = [cell_at(ahead, place - MIDDLE) for place in range(SIZE)]
        inside = [0 <= x < grid.width and 0 <= y < grid.height for x, y in cells]
        there = [grid.get(*cell) if here else None for cell, here in zip(cells, inside, strict=True)]
        clear = [here and (thing is None or thing.see_behind()) for here, thing in zip(inside, there, strict=True)]
        beyond = _spread(lit, clear)
        seen = {
            cell: Sight(ahead, place - MIDDLE, there[place])
            for place, cell in enumerate(cells)
            if lit[place] and inside[place] and (ahead or place != MIDDLE)
        }
        rows.append(seen)
        lit = beyond
    in_order = {cell: sight for seen in reversed(rows) for cell, sight in seen.items()}
    return View(in_order, _names(in_order))


def _spread(lit: list[bool], clear: list[bool]) -> list[bool]:
    """Sight goes on along a row, which lights up more of `lit`, and into the next row, which is returned."""
    beyond = [False] * SIZE
    for places, step in ((range(SIZE - 1), 1), (range(SIZE - 1, 0, -1), -1)):
        for place in places:
            if lit[place] and clear[place]:
                lit[place + step] = beyond[place + step] = beyond[place] = True
    return beyond


def _names(cells: Mapping[Cell, Sight]) -> dict[Cell, str]:
    near_first = sorted(
        ((cell, sight) for cell, sight in cells.items() if sight.thing is not None and sight.thing.type != "wall"),
        key=lambda item: item[1].ahead + abs(item[1].right),
    )
    counts: dict[str, int] = {}
    names = {}
    for cell, sight in near_first:
        name = name_of(sight.thing)
        counts[name] = counts.get(name, 0) + 1
        names[cell] = f"{name} {counts[name]}"
    return names


def describe(level: Level, view: View) -> str:
    """The view in AgentGym's words."""
    sentences = [
        f"There is a {name} {_where(view.cells[cell].ahead, view.cells[cell].right)}."
        for cell, name in view.names.items()
    ]
    seen = (
        f"In front of you in this room, you can see several objects: {' '.join(sentences)}"
        if sentences
        else "You cannot see any objects within sight."
    )
    return f"{seen} The room has walls around you. {_barrier(view)}{_carried(level)}"


def _where(ahead: int, right: int) -> str:
    if right == 0:
        return f"right in front of you {ahead} steps away"
    return f"{ahead} steps in front of you and {abs(right)} steps to your {'right' if right > 0 else 'left'}"


def _barrier(view: View) -> str:
    ahead = {
        sight.ahead: sight.thing.type
        for sight in view.cells.values()
        if sight.right == 0 and sight.thing is not None and sight.thing.type in ("wall", "box")
    }
    return f"You are facing a {ahead[min(ahead)]} {min(ahead)} steps away. " if ahead else ""


def _carried(level: Level) -> str:
    return f"You are carrying a {name_of(level.carrying)}." if level.carrying else "You are not carrying anything."
