"""The household as it changes: where everything is, what an action does to it, and what is then said.

The rules are those of ALFWorld's text games: one thing is carried at a time, receptacles with doors must be open before
anything goes in or out, and treatments need the right appliance at hand. Slicing is left out; no task needs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from openmanus_rl.envs.alfworld.generate import Game
from openmanus_rl.envs.alfworld.house import LAMP, OPENABLE, THINGS, TOOLS, kind_of, listed
from openmanus_rl.envs.base import ActionForm, ActionGrammar

NOTHING = "Nothing happens."

_NAME = r"[a-z]+ [1-9][0-9]?"
_PUT = rf"(?:put|move) (?P<put>{_NAME}) (?:in/on|in|on|to) (?P<target>{_NAME})"


def _grammar(put: str) -> ActionGrammar:
    return ActionGrammar(
        (
            ActionForm("go to desk 1", rf"go to (?P<go>{_NAME})"),
            ActionForm("take mug 1 from desk 1", rf"take (?P<take>{_NAME}) from (?P<source>{_NAME})"),
            ActionForm(put, _PUT),
            ActionForm("open drawer 1", rf"open (?P<open>{_NAME})"),
            ActionForm("close drawer 1", rf"close (?P<close>{_NAME})"),
            ActionForm("use desklamp 1", rf"use (?P<use>{_NAME})"),
            ActionForm(
                "clean mug 1 with sinkbasin 1", rf"(?P<treatment>clean) (?P<treat>{_NAME}) with (?P<tool>{_NAME})"
            ),
            ActionForm(
                "heat mug 1 with microwave 1", rf"(?P<treatment>heat) (?P<treat>{_NAME}) with (?P<tool>{_NAME})"
            ),
            ActionForm("cool mug 1 with fridge 1", rf"(?P<treatment>cool) (?P<treat>{_NAME}) with (?P<tool>{_NAME})"),
            ActionForm("examine desk 1", rf"examine (?P<examine>{_NAME})"),
            ActionForm("look", "(?P<look>look)"),
            ActionForm("inventory", "(?P<inventory>inventory)"),
            ActionForm("help", "(?P<help>help)"),
        )
    )


GRAMMARS: Mapping[str, ActionGrammar] = {
    "put": _grammar("put mug 1 in/on desk 1"),
    "move": _grammar("move mug 1 to desk 1"),
}
"""The words of ALFWorld 0.3 and of 0.4: what is shown differs, what is understood does not."""

_CONDITIONS = {"clean": "clean", "heat": "hot", "cool": "cold"}


@dataclass
class Household:
    """One game being played."""

    game: Game
    wording: str = "put"
    at: str | None = None
    holding: str | None = None
    where: dict[str, str] = field(default_factory=dict)
    """Each thing that is not carried, and its receptacle."""
    opened: set[str] = field(default_factory=set)
    treated: dict[str, list[str]] = field(default_factory=dict)
    """Things by treatment: what is hot is not cold, and the other way round."""
    lit: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.where = dict(self.game.places)
        self.treated = {treatment: [] for treatment in TOOLS}

    def begin(self) -> str:
        """What is seen first, and the task."""
        return f"{self._room()}\nYour task is to: {self.game.goal.words}."

    def act(self, action: str) -> str | None:
        """Do the action; what is answered, or None if it is none of this world's."""
        match = GRAMMARS[self.wording].parse(action)
        if match is None:
            return None
        said = {name: text.lower() for name, text in match.groupdict().items()}
        if "go" in said:
            return self._go(said["go"])
        if "take" in said:
            return self._take(said["take"], said["source"])
        if "put" in said:
            return self._put(said["put"], said["target"])
        if "open" in said:
            return self._open(said["open"])
        if "close" in said:
            return self._close(said["close"])
        if "use" in said:
            return self._use(said["use"])
        if "treat" in said:
            return self._treat(said["treatment"], said["treat"], said["tool"])
        if "examine" in said:
            return self._examine(said["examine"])
        if "look" in said:
            return f"You are facing the {self.at}. Next to it, you see nothing." if self.at else self._room()
        if "inventory" in said:
            return f"You are carrying: a {self.holding}." if self.holding else "You are not carrying anything."
        return f"Available commands: {GRAMMARS[self.wording].describe()}."

    def actions(self) -> list[str]:
        """All that would not be answered with `Nothing happens.`, sorted."""
        actions = ["help", "inventory", "look"]
        actions += [f"go to {name}" for name in self.game.receptacles if name != self.at]
        if self.at:
            actions.append(f"examine {self.at}")
            if kind_of(self.at) in OPENABLE:
                actions.append(f"{'close' if self.at in self.opened else 'open'} {self.at}")
        for thing in self.within_reach():
            actions.append(f"examine {thing}")
            if kind_of(thing) == LAMP:
                actions.append(f"use {thing}")
            elif self.holding is None:
                actions.append(f"take {thing} from {self.at}")
        if self.holding:
            actions.append(f"examine {self.holding}")
            if self.at and self._takes(self.at, self.holding):
                actions.append(self.put_action(self.holding, self.at))
            actions += [
                f"{treatment} {self.holding} with {self.at}"
                for treatment in TOOLS
                if self.at and self._can_treat(treatment, self.holding, self.at)
            ]
        return sorted(actions)

    def put_action(self, thing: str, place: str) -> str:
        return f"put {thing} in/on {place}" if self.wording == "put" else f"move {thing} to {place}"

    def within_reach(self) -> list[str]:
        """What can be seen and taken from here."""
        return self.contents(self.at) if self.at and self.is_accessible(self.at) else []

    def contents(self, place: str) -> list[str]:
        """All that is in or on a receptacle, seen or not; what was put there last comes last."""
        return [thing for thing, there in self.where.items() if there == place]

    def is_accessible(self, place: str) -> bool:
        return kind_of(place) not in OPENABLE or place in self.opened

    def is_treated(self, thing: str) -> bool:
        """Whether a thing is in the condition that the goal asks for."""
        treatment = self.game.goal.treatment
        return treatment is None or thing in self.treated[treatment]

    def won(self) -> bool:
        goal = self.game.goal
        if goal.in_light:
            lamps = self.contents(self.at) if self.at else []
            return self.holding is not None and kind_of(self.holding) == goal.thing and not self.lit.isdisjoint(lamps)
        return any(self.count_done(place) >= goal.count for place in self.game.of_kind(goal.place))

    def count_done(self, place: str) -> int:
        """How many things in a receptacle are as the goal wants them."""
        return sum(kind_of(thing) == self.game.goal.thing and self.is_treated(thing) for thing in self.contents(place))

    def state(self) -> dict[str, Any]:
        """All that changes, as a plain value."""
        return {
            "at": self.at,
            "holding": self.holding,
            "where": dict(self.where),
            "opened": sorted(self.opened),
            "treated": {treatment: sorted(things) for treatment, things in self.treated.items()},
            "lit": sorted(self.lit),
        }

    def become(self, state: Mapping[str, Any]) -> None:
        """Return to a state of the same game."""
        self.at, self.holding, self.where = state["at"], state["holding"], dict(state["where"])
        self.opened, self.lit = set(state["opened"]), set(state["lit"])
        self.treated = {treatment: list(things) for treatment, things in state["treated"].items()}

    def _room(self) -> str:
        return (
            "You are in the middle of a room. Looking quickly around you, you see "
            f"{listed(list(self.game.receptacles))}."
        )

    def _described(self, place: str) -> str:
        seen = listed(self.contents(place))
        if kind_of(place) not in OPENABLE:
            return f"On the {place}, you see {seen}."
        return f"The {place} is open. In it, you see {seen}." if place in self.opened else f"The {place} is closed."

    def _go(self, place: str) -> str:
        if place not in self.game.receptacles or place == self.at:
            return NOTHING
        self.at = place
        arrival = "" if self.wording == "put" else f"You arrive at {place}. "
        return arrival + self._described(place)

    def _take(self, thing: str, place: str) -> str:
        reachable = place == self.at and thing in self.within_reach()
        if not reachable or self.holding or kind_of(thing) == LAMP:
            return NOTHING
        del self.where[thing]
        self.holding = thing
        return f"You pick up the {thing} from the {place}."

    def _put(self, thing: str, place: str) -> str:
        if thing != self.holding or place != self.at or not self._takes(place, thing):
            return NOTHING
        self.where[thing] = place
        self.holding = None
        if self.wording == "put":
            return f"You put the {thing} in/on the {place}."
        return f"You move the {thing} to the {place}."

    def _takes(self, place: str, thing: str) -> bool:
        return self.is_accessible(place) and kind_of(place) in THINGS[kind_of(thing)].places

    def _open(self, place: str) -> str:
        if place != self.at or self.is_accessible(place):
            return NOTHING
        self.opened.add(place)
        return f"You open the {place}. {self._described(place)}"

    def _close(self, place: str) -> str:
        if place != self.at or place not in self.opened:
            return NOTHING
        self.opened.remove(place)
        return f"You close the {place}."

    def _use(self, thing: str) -> str:
        if kind_of(thing) != LAMP or thing not in self.within_reach():
            return NOTHING
        self.lit ^= {thing}
        return f"You turn {'on' if thing in self.lit else 'off'} the {thing}."

    def _can_treat(self, treatment: str, thing: str, place: str) -> bool:
        return kind_of(place) == TOOLS[treatment] and treatment in THINGS[kind_of(thing)].treatments

    def _treat(self, treatment: str, thing: str, place: str) -> str:
        if thing != self.holding or place != self.at or not self._can_treat(treatment, thing, place):
            return NOTHING
        undone = {"heat": "cool", "cool": "heat"}.get(treatment)
        if undone and thing in self.treated[undone]:
            self.treated[undone].remove(thing)
        if thing not in self.treated[treatment]:
            self.treated[treatment].append(thing)
        return f"You {treatment} the {thing} using the {place}."

    def _examine(self, name: str) -> str:
        if name == self.at:
            return self._described(name)
        if name != self.holding and name not in self.within_reach():
            return NOTHING
        if kind_of(name) == LAMP:
            return f"This {name} is {'on' if name in self.lit else 'off'}."
        conditions = [
            _CONDITIONS[treatment] for treatment in ("heat", "cool", "clean") if name in self.treated[treatment]
        ]
        if not conditions:
            return f"There's nothing special about {name}."
        return f"This is a {' and '.join(conditions)} {name}."
