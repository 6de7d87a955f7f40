"""The expert: one who knows where everything is, and does the next thing on a short way to the goal."""

from openmanus_rl.envs.alfworld.house import LAMP, THINGS, TOOLS, kind_of
from openmanus_rl.envs.alfworld.household import Household


def next_action(house: Household) -> str:
    """A good action in any state of a game that is not won."""
    goal = house.game.goal
    carried = house.holding
    if carried is None:
        return _fetch(house)
    if kind_of(carried) != goal.thing:
        return _put_away(house, carried)
    if goal.in_light:
        lamp, place = next((thing, place) for thing, place in house.where.items() if kind_of(thing) == LAMP)
        return _reach(house, place) or f"use {lamp}"
    if goal.treatment and not house.is_treated(carried):
        tool = house.game.of_kind(TOOLS[goal.treatment])[0]
        return _go(house, tool) or f"{goal.treatment} {carried} with {tool}"
    target = _target(house)
    return _reach(house, target) or house.put_action(carried, target)


def _target(house: Household) -> str:
    """The receptacle that is nearest to being as the goal wants it."""
    return max(house.game.of_kind(house.game.goal.place), key=house.count_done)


def _fetch(house: Household) -> str:
    """On the way to a thing that the goal still lacks, one that needs no more treatment if there is any."""
    goal = house.game.goal
    done = _target(house) if not goal.in_light else None
    lacking = [
        thing
        for thing, place in house.where.items()
        if kind_of(thing) == goal.thing and (place != done or not house.is_treated(thing))
    ]
    thing = max(lacking, key=house.is_treated)
    place = house.where[thing]
    return _reach(house, place) or f"take {thing} from {place}"


def _put_away(house: Household, thing: str) -> str:
    """Put a thing that the goal does not need down here, or else where it belongs."""
    fitting = [place for place in house.game.receptacles if kind_of(place) in THINGS[kind_of(thing)].places]
    place = house.at if house.at in fitting else fitting[0]
    return _reach(house, place) or house.put_action(thing, place)


def _go(house: Household, place: str) -> str | None:
    return None if house.at == place else f"go to {place}"


def _reach(house: Household, place: str) -> str | None:
    """What is left to do before things can go in or out of a receptacle."""
    return _go(house, place) or (None if house.is_accessible(place) else f"open {place}")
