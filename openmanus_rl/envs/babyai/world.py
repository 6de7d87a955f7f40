"""BabyAI as a world of words."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from openmanus_rl.envs.babyai.actions import CHECK, Choice, choices
from openmanus_rl.envs.babyai.expert import expert_choice
from openmanus_rl.envs.babyai.levels import (
    LEVELS,
    Level,
    actions_asked,
    check_requirements,
    make_level,
    name_of,
    position,
    things,
)
from openmanus_rl.envs.babyai.splits import LETTERS, table
from openmanus_rl.envs.babyai.view import describe, look
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
    stable_hash,
)
from openmanus_rl.envs.items import item_number, listed_names, pick
from openmanus_rl.errors import UserError, did_you_mean

_COLOR = "(?:red|green|blue|purple|yellow|grey)"
_DOOR = f"{_COLOR} (?:open|closed|locked) door [0-9]{{1,2}}"
_THING = f"{_COLOR} (?:ball|box|key) [0-9]{{1,2}}"

GRAMMAR = ActionGrammar(
    (
        ActionForm("turn left", "turn left"),
        ActionForm("turn right", "turn right"),
        ActionForm("move forward", "move forward"),
        ActionForm("go to red ball 1", f"go to (?:{_THING}|{_DOOR})"),
        ActionForm("pickup red ball 1", f"pick ?up {_THING}"),
        ActionForm("go through red open door 1", f"go through {_DOOR}"),
        ActionForm("toggle and go through red closed door 1", f"toggle and go through {_DOOR}"),
        ActionForm("toggle", "toggle"),
        ActionForm("drop", "drop"),
        ActionForm(CHECK, CHECK),
    )
)


@dataclass
class _Episode:
    item_id: str
    level: Level
    numbers: dict[int, int]
    """Of the things by what Python calls them, since two red balls may not mean the same to a mission."""
    offered: dict[str, Choice] = field(default_factory=dict)
    moves: list[int] = field(default_factory=list)
    turns: int = 0
    score: float = 0.0
    over: bool = False


class BabyAI(Environment):
    """A mission in rooms with doors, balls, boxes and keys: go to, pick up, open, put next to, and chains of these.

    The agent sees the cells before it, seven ahead and three to each side, as far as walls and closed doors let it, in
    words, and the actions that it can do. `go to red ball 1` and the like take as many moves as they need. `toggle`
    opens or closes the door, or opens the box, right in front. Doing the mission pays 1, less up to 0.9 for the share
    of the level's own limit of moves that it took, and ends the episode; nothing else pays or costs.

    Options: `levels` (names of some of the forty levels; unset: all), `max_steps` (turns).
    """

    name: ClassVar[str] = "babyai"
    grammar: ClassVar[ActionGrammar] = GRAMMAR
    success_rule: ClassVar[str] = "the mission is done within max_steps turns and the level's own limit of moves"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    requirements: ClassVar[tuple[str, ...]] = ("minigrid",)
    isolation: ClassVar[Isolation] = "inline"

    def __init__(self, levels: str | Sequence[str] | None = None, max_steps: int = 64) -> None:
        self.levels = _check_names(levels)
        if max_steps < 1:
            raise UserError(f"babyai: max_steps is {max_steps}", "An episode needs at least one turn.")
        check_requirements()
        self.max_steps = max_steps
        self._present: _Episode | None = None

    def instructions(self) -> str:
        return (
            "Do what the goal says, in rooms with doors and objects. You see what lies before you and what you can do. "
            f"Actions, with the names and numbers that you see: {self.grammar.describe()}."
        )

    @classmethod
    def item_ids(cls, split: Split, levels: Sequence[str] | None = None, **options: Any) -> Iterator[str]:
        """The missions of a split that can be won, the levels taking turns."""
        chosen = [LEVELS.index(name) for name in _check_names(levels)]
        for seed, line in enumerate(table()):
            for place in sorted(chosen):
                if line[place] == LETTERS[split]:
                    yield f"{cls.name}_{seed * len(LEVELS) + place}"

    def reset(self, task: Task) -> Observation:
        self._begin(task.item_id)
        return Observation(f"{self.goal}\n{self._seen()}")

    def step(self, action: str) -> StepResult:
        episode = self._episode
        if episode.over:
            raise EpisodeOver(f"{episode.item_id} is over; call reset")
        episode.turns += 1
        text, reward, ended, info = self._act(action)
        truncated = not ended and episode.turns >= self.max_steps
        out_of_moves = ended and reward == 0 and episode.level.step_count >= episode.level.max_steps
        episode.over = ended or truncated
        episode.score += reward
        return StepResult(
            Observation(text), reward, ended and not out_of_moves, truncated or out_of_moves, reward > 0, info
        )

    @property
    def goal(self) -> str:
        """The mission, as it is told at the start."""
        return f"Your goal: {self._episode.level.mission}"

    @property
    def score(self) -> float:
        """The return so far."""
        return self._episode.score

    def state_key(self) -> str:
        """The level, where everything is, and how far the mission has come.

        Turns and moves are left out, since a state is worth comparing whenever it was reached.
        """
        episode = self._episode
        level, numbers = episode.level, episode.numbers
        there = [(cell, numbers[id(thing)], name_of(thing)) for cell, thing in things(level)]
        carried = numbers[id(level.carrying)] if level.carrying else None
        steps = [_memory(action, numbers) for action in actions_asked(level.instrs)]
        state = (position(level), int(level.agent_dir), carried, there, _stages(level.instrs), steps)
        return f"{item_number(self.name, episode.item_id)} {stable_hash(repr(state)):016x}"

    def difficulty(self) -> str:
        """The name of the level."""
        return LEVELS[item_number(self.name, self._episode.item_id) % len(LEVELS)]

    def expert_action(self) -> str | None:
        return expert_choice(self._episode.level, self._episode.offered)

    def random_action(self, uniform: float) -> str:
        """Any action that can be done."""
        return pick(list(self._episode.offered), uniform)

    def snapshot(self) -> dict[str, Any]:
        """The moves so far: a level is brought back by doing them again."""
        episode = self._episode
        return {
            "item_id": episode.item_id,
            "moves": list(episode.moves),
            "turns": episode.turns,
            "score": episode.score,
            "over": episode.over,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self._begin(snapshot["item_id"])
        episode = self._episode
        self._move(snapshot["moves"])
        self._seen()
        episode.turns, episode.score, episode.over = snapshot["turns"], snapshot["score"], snapshot["over"]

    def render(self) -> str:
        """The whole level from above."""
        return f"{self._episode.level.mission}\n{self._episode.level.pprint_grid()}"

    @property
    def _episode(self) -> _Episode:
        if self._present is None:
            raise EpisodeOver("babyai: no episode has begun; call reset")
        return self._present

    def _begin(self, item_id: str) -> None:
        level = _start(item_number(self.name, item_id))
        there = [thing for _, thing in things(level)]
        inside = [thing.contains for thing in there if getattr(thing, "contains", None)]
        carried = [level.carrying] if level.carrying else []
        numbers = {id(thing): number for number, thing in enumerate([*there, *inside, *carried])}
        self._present = _Episode(item_id, level, numbers)

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Do the action: what is answered, the reward, whether that ends the episode, and why it is none if so."""
        if self.grammar.parse(action) is None:
            told = f"The action is not recognized. Please check valid actions.\n{self._available()}"
            return told, 0.0, False, {"invalid": f"not an action such as {self.grammar.describe()}"}
        words = action.strip().lower().replace("pick up", "pickup")
        choice = self._episode.offered.get(words)
        if choice is None:
            return f"You cannot {words} from here.\n{self._available()}", 0.0, False, {}
        if choice.kind == "check":
            told = f"You can take the following actions: {', '.join(self._episode.offered)}"
            return f"{told}\n{self._available()}", 0.0, False, {}
        if not choice.moves:
            return f"You are there already.\n{self._available()}", 0.0, False, {}
        reward, ended = self._move(choice.moves)
        text = self._seen()
        return f"{text}\nThe task is completed." if reward > 0 else text, reward, ended, {}

    def _move(self, moves: Sequence[int]) -> tuple[float, bool]:
        """Do moves of the simulator until one ends the episode: its reward, and whether it did."""
        for move in moves:
            self._episode.moves.append(move)
            _, reward, terminated, truncated, _ = self._episode.level.step(move)
            if terminated or truncated:
                return float(reward), True
        return 0.0, False

    def _seen(self) -> str:
        """What is seen, in words, and what can be done, which is kept for the next step."""
        level = self._episode.level
        view = look(level)
        self._episode.offered = choices(level, view)
        return f"{describe(level, view)}\n{self._available()}"

    def _available(self) -> str:
        return f"Available actions: {json.dumps(list(self._episode.offered))}"


def _start(number: int) -> Level:
    return make_level(LEVELS[number % len(LEVELS)], number // len(LEVELS))


def _check_names(levels: Sequence[str] | None) -> tuple[str, ...]:
    if levels is None:
        return LEVELS
    names = listed_names(levels)
    for name in names:
        if name not in LEVELS:
            raise UserError(f"babyai: there is no level {name!r}. {did_you_mean(name, LEVELS)}")
    if not names:
        raise UserError("babyai: levels is empty", "Leave it out for all levels.")
    return names


def _stages(instruction: Any) -> list[Any]:
    """Which parts of a mission are done."""
    if not hasattr(instruction, "instr_a"):
        return []
    done = [instruction.a_done == "success", instruction.b_done == "success"]
    return [*done, _stages(instruction.instr_a), _stages(instruction.instr_b)]


def _memory(action: Any, numbers: Mapping[int, int]) -> list[Any]:
    """What an action of a mission remembers: where it looks for its things, and what was carried before."""
    before = getattr(action, "preCarrying", None)
    described = [getattr(action, name) for name in ("desc", "desc_move", "desc_fixed") if hasattr(action, name)]
    places = [[(int(x), int(y)) for x, y in description.obj_poss] for description in described]
    return [places, numbers[id(before)] if before else None]
