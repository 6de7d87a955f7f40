"""An expert that knows the whole level: what to do next, from any state, without memory.

It does one action of the mission after the other. What stands in the way of it is done first: a door is opened, a key
for a locked one fetched, an object that blocks the way carried aside. Before something is fetched to be brought
somewhere, the way from there on is made free, since hands hold one thing only.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from openmanus_rl.envs.babyai.actions import Choice, Kind, beside, opens
from openmanus_rl.envs.babyai.levels import Cell, Level, position, things

Deed = Literal["face", "pickup", "toggle", "drop"]

CLOSED_DOOR, BLOCKER, LOCKED_DOOR = 1, 8, 60
"""What a cell on the way costs beside the step itself."""


@dataclass(frozen=True)
class Aim:
    """Go along a free way and do something with its last cell, which the agent faces then."""

    deed: Deed
    way: tuple[Cell, ...]
    """From the agent's cell on."""


def expert_choice(level: Level, offered: Mapping[str, Choice]) -> str | None:
    """The words of the next action, or None if the mission cannot be done any more."""
    aim = _Planner(level).aim()
    return None if aim is None else _in_words(level, aim, offered)


def knows_a_way(level: Level) -> bool:
    """Whether the mission can be done from here: some keys lie in the room that they open."""
    return _Planner(level).aim() is not None


def _in_words(level: Level, aim: Aim, offered: Mapping[str, Choice]) -> str:
    """An action that does the aim or a good part of it, else one move towards it."""
    words: dict[tuple[Kind, Cell | None], str] = {(choice.kind, choice.cell): text for text, choice in offered.items()}
    doors = [cell for cell in aim.way[1:-1] if _is_door(level.grid.get(*cell))]
    if doors and ("through", doors[0]) in words:
        return words["through", doors[0]]
    here, target = aim.way[0], aim.way[-1]
    is_there = len(aim.way) == 2 and beside(here, level.agent_dir) == target
    if not doors and not is_there:
        macro: Kind = "pickup" if aim.deed == "pickup" else "go to"
        if (macro, target) in words:
            return words[macro, target]
    if is_there:
        deeds: dict[Deed, tuple[Kind, Cell | None]] = {
            "face": ("turn left", None),  # looking at it counts from the next move on
            "pickup": ("pickup", target),
            "toggle": ("toggle", target),
            "drop": ("drop", target),
        }
        return words[deeds[aim.deed]]
    if beside(here, level.agent_dir) == aim.way[1]:
        return "move forward"
    return "turn left" if beside(here, level.agent_dir - 1) == aim.way[1] else "turn right"


class _Planner:
    """One look at a level."""

    def __init__(self, level: Level) -> None:
        self.level = level
        self.here = position(level)
        self.carrying = level.carrying
        self.things = dict(things(level))

    def aim(self) -> Aim | None:
        action = _next_action(self.level.instrs)
        if hasattr(action, "desc_move"):
            return self._put_next(action)
        kind = type(action).__name__
        if kind == "GoToInstr":
            return self._reach(action.desc.obj_poss, "face")
        targets = self._cells_of(action.desc.obj_set)
        if kind == "OpenInstr":
            can = [cell for cell in targets if opens(self.things[cell], self.carrying)]
            return self._reach(can, "toggle") if can else self._unlock_any(targets)
        way = self._way(self.here, targets)
        return self._put_down(()) if way is None else self._fetch(way)

    def _put_next(self, action: Any) -> Aim | None:
        """Carry the one to the other; first see that the way between them is free."""
        spots = self._spots_beside(self._cells_of(action.desc_fixed.obj_set))
        if any(self.carrying is thing for thing in action.desc_move.obj_set):
            return self._reach(spots, "drop")
        movers = self._cells_of(action.desc_move.obj_set)
        fetch = self._way(self.here, movers)
        if fetch is None:
            return None
        own = [cell for cell in self._cells_of(action.desc_fixed.obj_set) if cell != fetch[-1]]
        return self._fetch(fetch, self._spots_beside(own))

    def _fetch(
        self, fetch: tuple[Cell, ...], then: Collection[Cell] = (), banned: frozenset[Cell] = frozenset()
    ) -> Aim | None:
        """Pick up what lies at the end of a way, to bring it to one of some cells if there are any."""
        bring = self._way(fetch[-1], then, banned) or ()
        keep = (*fetch, *bring)
        for way in (bring, fetch):
            obstacle = self._obstacle(way)
            if obstacle is not None:
                return self._remove(obstacle, keep, banned)
        return Aim("pickup", fetch) if self.carrying is None else self._free_hands(keep)

    def _free_hands(self, keep: Collection[Cell]) -> Aim | None:
        """Use a key on the door that it was fetched for; put anything else down."""
        for cell in keep:
            thing = self.things.get(cell)
            if thing is not None and _is_door(thing) and thing.is_locked and opens(thing, self.carrying):
                way = self._way(self.here, [cell])
                if way is not None and self._obstacle(way) is None:
                    return Aim("toggle", way)
        return self._put_down(keep)

    def _reach(self, targets: Collection[Cell], deed: Deed, banned: frozenset[Cell] = frozenset()) -> Aim | None:
        way = self._way(self.here, targets, banned)
        if way is None:
            return None
        obstacle = self._obstacle(way)
        return Aim(deed, way) if obstacle is None else self._remove(obstacle, way, banned)

    def _remove(self, obstacle: Cell, keep: Collection[Cell], banned: frozenset[Cell]) -> Aim | None:
        """Do something about what stands in the way; `keep` are cells where nothing should be put."""
        if _is_door(self.things[obstacle]):
            return self._unlock(obstacle, banned)
        if self.carrying is not None:
            return self._free_hands(keep)
        return self._reach([obstacle], "pickup", banned)

    def _unlock_any(self, doors: Iterable[Cell]) -> Aim | None:
        aims = (self._unlock(door, frozenset()) for door in doors)
        return next((aim for aim in aims if aim is not None), None)

    def _unlock(self, door: Cell, banned: frozenset[Cell]) -> Aim | None:
        """Fetch the key of a door, taking it out of its box first; not by a way through that door."""
        banned = banned | {door}
        color = self.things[door].color
        fetch = self._way(self.here, [cell for cell, thing in self.things.items() if _is_key(thing, color)], banned)
        if fetch is not None:
            return self._fetch(fetch, [door], banned)
        boxes = [cell for cell, thing in self.things.items() if _is_key(getattr(thing, "contains", None), color)]
        return self._reach(boxes, "toggle", banned)

    def _put_down(self, keep: Collection[Cell]) -> Aim | None:
        """Drop what is carried on the nearest cell that is in nobody's way."""
        empty = [cell for cell in self._reachable() if self.level.grid.get(*cell) is None]
        aside = [cell for cell in empty if cell not in keep]
        for cells in ([cell for cell in aside if self._leaves_a_way_round(cell)], aside, empty):
            way = self._way(self.here, cells, walk_only=True)
            if way is not None:
                return Aim("drop", way)
        return None

    def _way(
        self,
        start: Cell,
        targets: Collection[Cell],
        banned: Collection[Cell] = (),
        walk_only: bool = False,
    ) -> tuple[Cell, ...] | None:
        """The cheapest way from a cell to facing one of the targets; `walk_only`: without anything to remove first."""
        wanted = set(targets)
        best = {start: 0}
        before: dict[Cell, Cell] = {}
        queue = [(0, start)]
        while queue:
            cost, cell = heapq.heappop(queue)
            if cost > best[cell]:
                continue
            around = [beside(cell, direction) for direction in range(4)]
            reached = [there for there in around if there in wanted]
            if reached:
                return (*_back(before, start, cell), reached[0])
            for there in around:
                price = None if there in banned else self._price(there)
                if price is None or (walk_only and price >= BLOCKER):
                    continue
                if cost + price < best.get(there, 1_000_000):
                    best[there] = cost + price
                    before[there] = cell
                    heapq.heappush(queue, (cost + price, there))
        return None

    def _price(self, cell: Cell) -> int | None:
        """Of stepping on a cell; None for walls."""
        thing = self.level.grid.get(*cell)
        if thing is None or thing.can_overlap():
            return 1
        if thing.type == "wall":
            return None
        if not _is_door(thing):
            return 1 + BLOCKER
        return 1 + (CLOSED_DOOR if opens(thing, self.carrying) else LOCKED_DOOR)

    def _obstacle(self, way: tuple[Cell, ...]) -> Cell | None:
        """The first cell between the ends of a way that cannot be walked on or through."""
        for cell in way[1:-1]:
            price = self._price(cell)
            if price is not None and price >= BLOCKER and cell != self.here:
                return cell
        return None

    def _reachable(self) -> list[Cell]:
        """All cells that can be walked to, the nearest first."""
        met, order = {self.here}, [self.here]
        for cell in order:
            for direction in range(4):
                there = beside(cell, direction)
                price = self._price(there)
                if there not in met and price is not None and price < BLOCKER:
                    met.add(there)
                    order.append(there)
        return order

    def _leaves_a_way_round(self, cell: Cell) -> bool:
        """Whether the free cells around a cell hang together without it."""
        ring = [(0, -1), (1, -1), (1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1)]
        around = [self.level.grid.get(cell[0] + right, cell[1] + down) for right, down in ring]
        free = [thing is None or _is_door(thing) for thing in around]
        return sum(free[place] != free[place - 1] for place in range(8)) <= 2

    def _cells_of(self, wanted: Collection[Any]) -> list[Cell]:
        return [cell for cell, thing in self.things.items() if any(thing is other for other in wanted)]

    def _spots_beside(self, cells: Iterable[Cell]) -> list[Cell]:
        """Empty cells next to some cells."""
        around = dict.fromkeys(beside(cell, direction) for cell in cells for direction in range(4))
        return [cell for cell in around if self.level.grid.get(*cell) is None]


def _back(before: Mapping[Cell, Cell], start: Cell, cell: Cell) -> list[Cell]:
    way = [cell]
    while way[-1] != start:
        way.append(before[way[-1]])
    return way[::-1]


def _next_action(instruction: Any) -> Any:
    """The action of the mission that is to be done now."""
    if not hasattr(instruction, "instr_a"):
        return instruction
    done = instruction.b_done if type(instruction).__name__ == "AfterInstr" else instruction.a_done
    first, second = instruction.instr_a, instruction.instr_b
    if type(instruction).__name__ == "AfterInstr":
        first, second = second, first
    return _next_action(second if done == "success" else first)


def _is_door(thing: Any) -> bool:
    return thing is not None and thing.type == "door"


def _is_key(thing: Any, color: str) -> bool:
    return thing is not None and thing.type == "key" and thing.color == color
