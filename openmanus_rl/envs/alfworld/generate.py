"""Games from numbers: a room, what lies where, and one of the six tasks, the same for ever and on every machine."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from openmanus_rl.envs.alfworld.house import LAMP, LAMP_PLACES, ROOMS, THINGS, TOOLS, ThingKind, kind_of
from openmanus_rl.envs.items import pick, seeded

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""ALFWorld's names. Game n asks for the task of type n modulo 6."""

_WORDINGS: Mapping[str, tuple[str, ...]] = {
    "pick_and_place_simple": ("put a {thing} in {place}", "put some {thing} on {place}"),
    "look_at_obj_in_light": ("look at {thing} under the {place}", "examine the {thing} with the {place}"),
    "pick_clean_then_place_in_recep": ("put a clean {thing} in {place}", "clean some {thing} and put it in {place}"),
    "pick_heat_then_place_in_recep": ("put a hot {thing} in {place}", "heat some {thing} and put it in {place}"),
    "pick_cool_then_place_in_recep": ("put a cool {thing} in {place}", "cool some {thing} and put it in {place}"),
    "pick_two_obj_and_place": ("put two {thing} in {place}", "find two {thing} and put them in {place}"),
}

_TREATMENTS: Mapping[str, str] = {
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
}

_CLUTTER = 0.55
"""The chance that a kind of thing which belongs into the room is there at all."""


@dataclass(frozen=True)
class Goal:
    """What is asked for: `count` things of a kind, treated if a treatment is named, in one receptacle of a kind.

    Where `place` is the lamp, one thing is to be held beside a lamp that is on.
    """

    task_type: str
    thing: str
    place: str
    words: str

    @property
    def treatment(self) -> str | None:
        return _TREATMENTS.get(self.task_type)

    @property
    def count(self) -> int:
        return 2 if self.task_type == "pick_two_obj_and_place" else 1

    @property
    def in_light(self) -> bool:
        return self.place == LAMP


@dataclass(frozen=True)
class Game:
    """A room at the start: its receptacles in the order they are listed, what is in or on them, and the goal."""

    room: str
    receptacles: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    """Each thing and the receptacle it begins in, lamps included."""
    goal: Goal

    @cached_property
    def content(self) -> str:
        """All that makes the game, as one line."""
        where = "; ".join(f"{thing} @ {place}" for thing, place in self.places)
        return f"{self.room}: {', '.join(self.receptacles)}: {where}: {self.goal.task_type} {self.goal.words}"

    def of_kind(self, kind: str) -> list[str]:
        return [name for name in self.receptacles if kind_of(name) == kind]


def make_game(number: int) -> Game:
    """Game `number`. Its goal can be reached, and is not reached at the start."""
    chance = seeded(f"alfworld {number}")
    task_type = TASK_TYPES[number % len(TASK_TYPES)]
    room = pick([room for room in ROOMS if _suits(task_type, room)], chance.random())
    receptacles = [
        f"{kind} {index}"
        for kind, (least, most) in ROOMS[room].items()
        for index in range(1, least + int(chance.random() * (most - least + 1)) + 1)
    ]
    present = tuple(dict.fromkeys(map(kind_of, receptacles)))
    goal = _make_goal(task_type, room, present, chance)
    return Game(room, tuple(receptacles), tuple(_place_things(room, receptacles, goal, chance)), goal)


def _suits(task_type: str, room: str) -> bool:
    if task_type == "look_at_obj_in_light":
        return room in ("livingroom", "bedroom")
    treatment = _TREATMENTS.get(task_type)
    return treatment is None or TOOLS[treatment] in ROOMS[room]


def _make_goal(task_type: str, room: str, present: tuple[str, ...], chance: random.Random) -> Goal:
    treatment = _TREATMENTS.get(task_type)
    choices = [
        (kind.name, place)
        for kind in THINGS.values()
        if room in kind.rooms and (treatment is None or treatment in kind.treatments)
        for place in _destinations(kind, treatment, present)
    ]
    thing, place = pick(choices, chance.random())
    if task_type == "look_at_obj_in_light":
        place = LAMP
    wording = pick(_WORDINGS[task_type], chance.random())
    return Goal(task_type, thing, place, wording.format(thing=thing, place=place))


def _destinations(kind: ThingKind, treatment: str | None, present: tuple[str, ...]) -> list[str]:
    """Receptacles that take the thing, but not the one that treats it; one more must be left to find it in."""
    takes = [place for place in kind.places if place in present]
    if len(takes) < 2:
        return []
    return [place for place in takes if treatment is None or place != TOOLS[treatment]]


def _place_things(room: str, receptacles: list[str], goal: Goal, chance: random.Random) -> list[tuple[str, str]]:
    """Things in their places; those that the goal asks for are never where it wants them."""
    places = []
    for kind in THINGS.values():
        if room not in kind.rooms:
            continue
        wanted = kind.name == goal.thing
        least = goal.count if wanted else 0
        count = max(least, 1 + int(chance.random() * 3) if chance.random() < _CLUTTER else 0)
        takes = [name for name in receptacles if kind_of(name) in kind.places]
        if wanted:
            takes = [name for name in takes if kind_of(name) != goal.place]
        if takes:
            places += [(f"{kind.name} {index}", pick(takes, chance.random())) for index in range(1, count + 1)]
    if goal.in_light:
        surfaces = [name for name in receptacles if kind_of(name) in LAMP_PLACES]
        places.append((f"{LAMP} 1", pick(surfaces, chance.random())))
    return places
