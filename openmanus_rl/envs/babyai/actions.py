"""What can be done at a moment, in words, and the moves of the simulator that each of them takes."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from openmanus_rl.envs.babyai.levels import Cell, Level, position
from openmanus_rl.envs.babyai.view import DIRECTIONS, View

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE = range(6)
"""The simulator's moves."""

Kind = Literal["turn left", "turn right", "move forward", "go to", "pickup", "through", "toggle", "drop", "check"]
CHECK = "check available actions"


@dataclass(frozen=True)
class Choice:
    """One action that can be done: of which kind, with what is in which cell, by which moves."""

    kind: Kind
    cell: Cell | None
    moves: tuple[int, ...]


def choices(level: Level, view: View) -> dict[str, Choice]:
    """All actions that can be done, by their words."""
    here, carrying = position(level), level.carrying
    front = beside(here, level.agent_dir)
    in_front = level.grid.get(*front)
    facing, arriving = _ways(here, level.agent_dir, view)
    offered = {"turn left": Choice("turn left", None, (LEFT,)), "turn right": Choice("turn right", None, (RIGHT,))}
    if in_front is None or in_front.can_overlap():
        offered["move forward"] = Choice("move forward", front, (FORWARD,))
    for cell, name in view.names.items():
        if carrying is None and cell in facing and view.cells[cell].thing.can_pickup():
            offered[f"pickup {name}"] = Choice("pickup", cell, (*facing[cell], PICKUP))
    if carrying is not None and in_front is None:
        offered["drop"] = Choice("drop", front, (DROP,))
    for cell, name in view.names.items():
        thing = view.cells[cell].thing
        if thing.type != "door":
            continue
        if thing.is_open and cell in arriving:
            offered[f"go through {name}"] = Choice("through", cell, arriving[cell])
        elif not thing.is_open and cell in facing and opens(thing, carrying):
            offered[f"toggle and go through {name}"] = Choice("through", cell, (*facing[cell], TOGGLE, FORWARD))
    if in_front is not None and (in_front.type == "box" or (in_front.type == "door" and opens(in_front, carrying))):
        offered["toggle"] = Choice("toggle", front, (TOGGLE,))
    for cell, name in view.names.items():
        if cell in facing:
            offered[f"go to {name}"] = Choice("go to", cell, facing[cell])
    offered[CHECK] = Choice("check", None, ())
    return offered


def opens(door: Any, carrying: Any) -> bool:
    """Whether a door can be opened or closed with what is carried."""
    return not door.is_locked or (carrying is not None and carrying.type == "key" and carrying.color == door.color)


def beside(cell: Cell, direction: int) -> Cell:
    """The next cell in a direction."""
    right, down = DIRECTIONS[direction % 4]
    return cell[0] + right, cell[1] + down


def _ways(here: Cell, direction: int, view: View) -> tuple[dict[Cell, tuple[int, ...]], dict[Cell, tuple[int, ...]]]:
    """The fewest moves, over free cells in view, to face each cell, and to stand on it."""
    free = {cell for cell, sight in view.cells.items() if sight.thing is None or sight.thing.can_overlap()}
    facing: dict[Cell, tuple[int, ...]] = {}
    arriving: dict[Cell, tuple[int, ...]] = {}
    frontier: deque[tuple[Cell, int, tuple[int, ...]]] = deque([(here, direction, ())])
    met = {(here, direction)}
    while frontier:
        cell, heading, moves = frontier.popleft()
        arriving.setdefault(cell, moves)
        ahead = beside(cell, heading)
        facing.setdefault(ahead, moves)
        for move, there, turned in (
            (FORWARD, ahead, heading),
            (LEFT, cell, (heading - 1) % 4),
            (RIGHT, cell, (heading + 1) % 4),
        ):
            if (there, turned) not in met and (there == cell or there in free):
                met.add((there, turned))
                frontier.append((there, turned, (*moves, move)))
    return facing, arriving
