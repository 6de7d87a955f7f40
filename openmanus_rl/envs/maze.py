"""Maze: walk from a start cell to a goal cell, seeing only the walls around you and where the goal lies."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Isolation,
    Observation,
    Split,
    StepResult,
    Task,
    split_of,
    stable_hash,
)
from openmanus_rl.envs.items import in_doubling_steps, item_number, pick, seeded
from openmanus_rl.errors import UserError, did_you_mean

Cell = tuple[int, int]
"""Row from the top, column from the left."""

DIRECTIONS: Mapping[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

GOAL_REWARD = 1.0
BUMP_REWARD = -0.1
INVALID_REWARD = -0.05

_BARREN_RUN = 5_000
"""So many numbers in a row without a new maze mean that a small size has no more of them."""


@dataclass(frozen=True)
class MazeLayout:
    """The walls, the start and the goal: all that makes one maze differ from another."""

    size: int
    passages: frozenset[tuple[Cell, Cell]]
    """Pairs of neighbours without a wall between them, in both orders."""
    start: Cell
    goal: Cell

    @property
    def cells(self) -> list[Cell]:
        return [(row, column) for row in range(self.size) for column in range(self.size)]

    def neighbour(self, cell: Cell, direction: str) -> Cell | None:
        """The cell that a step leads to, or None where a wall is."""
        there = _beside(cell, direction)
        return there if (cell, there) in self.passages else None

    @cached_property
    def distances(self) -> Mapping[Cell, int]:
        """Steps from each cell to the goal on a shortest way."""
        distances = {self.goal: 0}
        frontier = deque([self.goal])
        while frontier:
            cell = frontier.popleft()
            for direction in DIRECTIONS:
                there = self.neighbour(cell, direction)
                if there is not None and there not in distances:
                    distances[there] = distances[cell] + 1
                    frontier.append(there)
        return distances

    @property
    def shortest(self) -> int:
        """How many steps the best player needs."""
        return self.distances[self.start]

    @cached_property
    def content(self) -> str:
        """The maze as one line: equal for two mazes exactly if they are the same maze."""
        sides = [
            "".join("1" if self.neighbour(cell, direction) else "0" for cell in self.cells)
            for direction in ("down", "right")
        ]
        return f"{self.size} down={sides[0]} right={sides[1]} start={self.start} goal={self.goal}"

    def picture(self, position: Cell) -> str:
        """The maze from above: `@` is the player, `G` the goal."""
        lines = ["+" + "---+" * self.size]
        for row in range(self.size):
            middle, below = "|", "+"
            for column in range(self.size):
                cell = (row, column)
                mark = "@" if cell == position else "G" if cell == self.goal else " "
                middle += f" {mark} " + (" " if self.neighbour(cell, "right") else "|")
                below += ("   " if self.neighbour(cell, "down") else "---") + "+"
            lines += [middle, below]
        return "\n".join(lines)


def make_layout(number: int, size: int, open_walls: float) -> MazeLayout:
    """Maze `number`: a perfect maze by depth-first carving, then each wall left is opened with chance `open_walls`."""
    chance = seeded(f"maze {size} {float(open_walls)} {number}")
    cells = [(row, column) for row in range(size) for column in range(size)]
    passages: set[tuple[Cell, Cell]] = set()

    def connect(here: Cell, there: Cell) -> None:
        passages.update({(here, there), (there, here)})

    path = [pick(cells, chance.random())]
    carved = set(path)
    while path:
        beside = [_beside(path[-1], direction) for direction in DIRECTIONS]
        fresh = [cell for cell in beside if cell not in carved and _inside(cell, size)]
        if not fresh:
            path.pop()
            continue
        there = pick(fresh, chance.random())
        connect(path[-1], there)
        carved.add(there)
        path.append(there)

    for cell in cells:
        for there in (_beside(cell, "down"), _beside(cell, "right")):
            if _inside(there, size) and (cell, there) not in passages and chance.random() < open_walls:
                connect(cell, there)

    start = pick(cells, chance.random())
    goal = pick([cell for cell in cells if cell != start], chance.random())
    return MazeLayout(size, frozenset(passages), start, goal)


def _beside(cell: Cell, direction: str) -> Cell:
    down, right = DIRECTIONS[direction]
    return cell[0] + down, cell[1] + right


def _inside(cell: Cell, size: int) -> bool:
    return 0 <= cell[0] < size and 0 <= cell[1] < size


_DOUBLE_T: tuple[Cell, ...] = (
    *((1, column) for column in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11)),
    *((row, 3) for row in (2, 3, 4, 5)),
    *((5, column) for column in (4, 5, 6)),
    *((row, 6) for row in (6, 7)),
    *((5, column) for column in (7, 8, 9)),
    *((row, 9) for row in (4, 3, 2)),
)
"""The free cells of AgentGym's maze in its order, but for the goal: two T side by side on the arms of a third one."""


def double_t_layout(number: int) -> MazeLayout:
    """AgentGym's maze, game `number`: always the same walls and goal, and another start."""
    if number >= len(_DOUBLE_T):
        last = len(_DOUBLE_T) - 1
        raise UserError(f"maze_{number} is not a task of the layout double_t", f"It has maze_0 to maze_{last}.")
    goal = (8, 6)
    free = {*_DOUBLE_T, goal}
    beside = ((cell, _beside(cell, direction)) for cell in free for direction in DIRECTIONS)
    return MazeLayout(13, frozenset(pair for pair in beside if pair[1] in free), _DOUBLE_T[number], goal)


def describe_in_slots(layout: MazeLayout, position: Cell, visited: set[Cell], full: bool) -> str:
    """`up:open down:seen left:wall right:open goal x+3 y-1`: every word has its place."""
    words = []
    for direction in DIRECTIONS:
        there = layout.neighbour(position, direction)
        words.append(f"{direction}:{'wall' if there is None else 'seen' if there in visited else 'open'}")
    if not full:
        return " ".join(words)
    right = layout.goal[1] - position[1]
    upwards = position[0] - layout.goal[0]
    return f"{' '.join(words)} goal x{right:+d} y{upwards:+d}"


def describe_in_sentences(layout: MazeLayout, position: Cell, visited: set[Cell], full: bool) -> str:
    """The facts that AgentGym's maze tells, with rows counted from the top and columns from the left."""
    sides = {"right": "to your right", "left": "to your left", "up": "above you", "down": "below you"}
    walls = [side for direction, side in sides.items() if layout.neighbour(position, direction) is None]
    told = "no walls near you" if not walls else f"{'walls' if len(walls) > 1 else 'a wall'} {', '.join(walls)}"
    seen = f"There {'is' if len(walls) == 1 else 'are'} {told}."
    if not full:
        return seen
    return (
        f"The goal is at position {layout.goal[0]}, {layout.goal[1]}. "
        f"Your current position is at position {position[0]}, {position[1]}. {seen}"
    )


WORDINGS: Mapping[str, Callable[[MazeLayout, Cell, set[Cell], bool], str]] = {
    "slots": describe_in_slots,
    "agentgym": describe_in_sentences,
}
LAYOUTS = ("random", "double_t")
OBSERVATIONS = ("full", "partial")


@dataclass
class _Walk:
    """Where an episode stands."""

    item_id: str
    layout: MazeLayout
    position: Cell
    visited: set[Cell]
    steps: int = 0
    over: bool = False


class Maze(Environment):
    """A square of cells with walls between some of them; the player walks from the start to the goal.

    Each turn is one of `up`, `down`, `left`, `right`. What is seen is one line with a fixed place for everything:
    `up:open down:seen left:wall right:open goal x+3 y-1`. A direction is `open` (free, and not visited yet in this
    episode), `seen` (free, visited) or `wall`. The goal is given from the player: x grows to the right, y upwards,
    so here it is three columns to the right and one row down.

    Reaching the goal pays 1 and ends the episode. Walking into a wall costs 0.1 and leaves the player where it is;
    what is not an action costs 0.05. After `max_steps` turns the episode is cut.

    Options: `size` (cells on a side), `open_walls` (the share of walls opened beyond a perfect maze), `max_steps`,
    `wording` (`slots`, the line above, or `agentgym`: sentences with absolute rows and columns), `observation`
    (`full`, or `partial`: only the walls around the player, not where the goal is), `layout` (`random`, or `double_t`:
    AgentGym's one maze with its 25 starts, whatever `size` and `open_walls` say), `penalties` (whether bumps and what
    is no action cost something; AgentGym's do not).
    """

    name: ClassVar[str] = "maze"
    grammar: ClassVar[ActionGrammar] = ActionGrammar(
        tuple(ActionForm(direction, rf"(?:move\s+)?(?P<direction>{direction})") for direction in DIRECTIONS)
    )
    success_rule: ClassVar[str] = "the player stands on the goal within max_steps turns"
    score_range: ClassVar[tuple[float, float]] = (-1.6, 1.0)
    isolation: ClassVar[Isolation] = "inline"

    def __init__(
        self,
        size: int = 4,
        open_walls: float = 0.6,
        max_steps: int = 16,
        wording: Literal["slots", "agentgym"] = "slots",
        observation: Literal["full", "partial"] = "full",
        layout: Literal["random", "double_t"] = "random",
        penalties: bool = True,
    ) -> None:
        if not 2 <= size <= 64:
            raise UserError(f"maze: size is {size}", "A maze has 2 to 64 cells on a side.")
        if not 0 <= open_walls <= 1:
            raise UserError(f"maze: open_walls is {open_walls}", "It is a share: 0 leaves a perfect maze, 1 no walls.")
        if max_steps < 1:
            raise UserError(f"maze: max_steps is {max_steps}", "An episode needs at least one turn.")
        if wording not in WORDINGS:
            raise UserError(f"maze: there is no wording {wording!r}. {did_you_mean(wording, WORDINGS)}")
        if observation not in OBSERVATIONS:
            raise UserError(f"maze: there is no observation {observation!r}. {did_you_mean(observation, OBSERVATIONS)}")
        if layout not in LAYOUTS:
            raise UserError(f"maze: there is no layout {layout!r}. {did_you_mean(layout, LAYOUTS)}")
        vars(self)["score_range"] = (BUMP_REWARD * max_steps if penalties else 0.0, GOAL_REWARD)
        self.size = size
        self.open_walls = open_walls
        self.max_steps = max_steps
        self.wording = wording
        self.full = observation == "full"
        self.layout = layout
        self.penalties = penalties
        self._present: _Walk | None = None

    def instructions(self) -> str:
        return f"Reach the goal. Actions: {self.grammar.describe()}."

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """The mazes of a split that can be solved in `max_steps`, without end unless a tiny size runs out of them."""
        world = cls(**options)
        yielded: set[int] = set()
        number = last = 0
        end = len(_DOUBLE_T) if world.layout == "double_t" else None
        while number - last < _BARREN_RUN and number != end:
            layout = world._layout_of(f"{cls.name}_{number}")
            name = stable_hash(layout.content)
            if split_of(layout.content) == split and layout.shortest <= world.max_steps and name not in yielded:
                yielded.add(name)
                last = number
                yield f"{cls.name}_{number}"
            number += 1

    def reset(self, task: Task) -> Observation:
        layout = self._layout_of(task.item_id)
        self._present = _Walk(task.item_id, layout, layout.start, {layout.start})
        return self._observation()

    def step(self, action: str) -> StepResult:
        walk = self._walk
        if walk.over:
            raise EpisodeOver(f"{walk.item_id} is over; call reset")
        walk.steps += 1
        reward, info = self._move(action)
        success = walk.position == walk.layout.goal
        truncated = not success and walk.steps >= self.max_steps
        walk.over = success or truncated
        return StepResult(self._observation(), reward, success, truncated, success, info)

    def state_key(self) -> str:
        """Maze, position and visited cells: from there the same actions bring the same rewards and observations.

        The number of turns is left out, since a state is worth comparing whenever it was reached.
        """
        walk = self._walk
        visited = "".join("1" if cell in walk.visited else "0" for cell in walk.layout.cells)
        return f"{stable_hash(walk.layout.content):016x} {walk.position[0]},{walk.position[1]} {visited}"

    def difficulty(self) -> str:
        """How many steps the best player needs: 1 to 2, 3 to 4, 5 to 8, 9 to 16, …"""
        return in_doubling_steps("steps", self._walk.layout.shortest)

    def expert_action(self) -> str:
        """The first direction, in the order of the grammar, that lies on a shortest way to the goal."""
        layout, position = self._walk.layout, self._walk.position
        ways = {direction: layout.neighbour(position, direction) for direction in DIRECTIONS}
        steps_left = {direction: layout.distances[there] for direction, there in ways.items() if there is not None}
        return min(steps_left, key=steps_left.__getitem__)

    def random_action(self, uniform: float) -> str:
        """Any of the four directions, walls or not."""
        return pick(tuple(DIRECTIONS), uniform)

    def snapshot(self) -> dict[str, Any]:
        walk = self._walk
        return {
            "item_id": walk.item_id,
            "position": list(walk.position),
            "visited": sorted(list(cell) for cell in walk.visited),
            "steps": walk.steps,
            "over": walk.over,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        row, column = snapshot["position"]
        visited = {(row, column) for row, column in snapshot["visited"]}
        layout = self._layout_of(snapshot["item_id"])
        self._present = _Walk(snapshot["item_id"], layout, (row, column), visited, snapshot["steps"], snapshot["over"])

    def render(self) -> str:
        return self._walk.layout.picture(self._walk.position)

    @property
    def _walk(self) -> _Walk:
        if self._present is None:
            raise EpisodeOver("maze: no episode has begun; call reset")
        return self._present

    def _layout_of(self, item_id: str) -> MazeLayout:
        number = item_number(self.name, item_id)
        if self.layout == "double_t":
            return double_t_layout(number)
        return make_layout(number, self.size, self.open_walls)

    def _move(self, action: str) -> tuple[float, dict[str, Any]]:
        """Walk, if nothing is in the way: the reward, and the reason if the action is none of this world's."""
        walk = self._walk
        match = self.grammar.parse(action)
        if match is None:
            return INVALID_REWARD if self.penalties else 0.0, {"invalid": f"not one of {self.grammar.describe()}"}
        there = walk.layout.neighbour(walk.position, match["direction"].lower())
        if there is None:
            return BUMP_REWARD if self.penalties else 0.0, {}
        walk.position = there
        walk.visited.add(there)
        return (GOAL_REWARD if there == walk.layout.goal else 0.0), {}

    def _observation(self) -> Observation:
        walk = self._walk
        return Observation(WORDINGS[self.wording](walk.layout, walk.position, walk.visited, self.full))
