"""Games as ALFWorld publishes them (`game.tw-pddl`), of our generator's rooms and with the grammar of its package.

The same game can so be played by TextWorld and by our own rules.
"""

import json
import zipfile
from pathlib import Path

from openmanus_rl.envs.alfworld.generate import Game, Goal
from openmanus_rl.envs.alfworld.house import LAMP, OPENABLE, THINGS, kind_of

DOMAIN, GRAMMAR = "alfworld/data/alfred.pddl", "alfworld/data/alfred.twl2"

OLDER_WORDS = {
    'template :: "move {o} to {r}"': 'template :: "put {o} in/on {r}"',
    "You move the {o.name} to the {r.name}.": "You put the {o.name} in/on the {r.name}.",
    "You arrive at {r.name}.": "You arrive at {lend.name}.",
}
"""What ALFWorld 0.3 says where 0.4 says the other."""

_TREATED = {None: "", "clean": "(isClean ?o)", "heat": "(isHot ?o)", "cool": "(isCool ?o)"}


def write_game(root: Path, folder: str, number: int, game: Game, wheel: Path, wording: str) -> str:
    """Write the game with the grammar of ALFWorld's wheel; its item id."""
    with zipfile.ZipFile(wheel) as archive:
        domain, grammar = (archive.read(name).decode() for name in (DOMAIN, GRAMMAR))
    for newer, older in OLDER_WORDS.items() if wording == "put" else ():
        assert newer in grammar
        grammar = grammar.replace(newer, older)
    goal = game.goal
    item_id = f"{folder}/{goal.task_type}-{goal.thing}-None-{goal.place}-{number}/trial_T{number}"
    (root / item_id).mkdir(parents=True)
    written = {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL", goal.words),
        "pddl_problem": _problem(game),
        "solvable": True,
        "walkthrough": None,
    }
    (root / item_id / "game.tw-pddl").write_text(json.dumps(written))
    return item_id


def _problem(game: Game) -> str:
    things = [thing for thing, _ in game.places]
    places = {place: f"loc_bar_{index:02}" for index, place in enumerate(game.receptacles)}
    kinds, place_kinds = sorted({*map(kind_of, things)}), sorted({*map(kind_of, places)})
    objects = ["agent1 - agent", "loc_bar_99 - location", *(f"{location} - location" for location in places.values())]
    objects += [f"{kind}type - rtype" for kind in place_kinds] + [f"{kind}type - otype" for kind in kinds]
    objects += [f"{_identifier(place)} - receptacle" for place in places]
    objects += [f"{_identifier(thing)} - object" for thing in things]
    facts = ["(= (total-cost) 0)", "(atLocation agent1 loc_bar_99)"]
    for place, location in places.items():
        facts.append(f"(receptacleAtLocation {_identifier(place)} {location})")
        facts.append(f"(receptacleType {_identifier(place)} {kind_of(place)}type)")
        facts += [f"(openable {_identifier(place)})"] if kind_of(place) in OPENABLE else []
    for thing, place in game.places:
        name, kind = _identifier(thing), kind_of(thing)
        facts += [f"(objectType {name} {kind}type)", f"(inReceptacle {name} {_identifier(place)})"]
        facts.append(f"(objectAtLocation {name} {places[place]})")
        can = ["toggleable"] if kind == LAMP else ["pickupable", *(f"{what}able" for what in THINGS[kind].treatments)]
        facts += [f"({what} {name})" for what in can]
    for kind in kinds:
        takes = THINGS[kind].places if kind != LAMP else ()
        facts += [f"(canContain {place}type {kind}type)" for place in takes if place in place_kinds]
    return (
        f"(define (problem game) (:domain alfred) (:objects {' '.join(objects)}) (:init {' '.join(facts)}) "
        f"(:goal (and {_goal(game.goal)})) (:metric minimize (total-cost)))"
    )


def _identifier(name: str) -> str:
    """ALFWorld numbers things downwards in the order of their identifiers."""
    kind, number = name.split()
    return f"{kind}_bar_{99 - int(number)}"


def _goal(goal: Goal) -> str:
    if goal.in_light:
        return (
            "(exists (?o - object ?a - agent ?l - location ?r - receptacle) (and (toggleable ?o) (isToggled ?o) "
            "(inReceptacle ?o ?r) (receptacleAtLocation ?r ?l) (atLocation ?a ?l))) "
            f"(exists (?o - object ?a - agent) (and (objectType ?o {goal.thing}type) (holds ?a ?o)))"
        )
    there = f"(receptacleType ?r {goal.place}type) (objectType ?o {goal.thing}type) (inReceptacle ?o ?r)"
    if goal.count == 2:
        there += f" (objectType ?p {goal.thing}type) (inReceptacle ?p ?r) (not (= ?o ?p))"
    return f"(exists (?r - receptacle ?o - object ?p - object) (and {there} {_TREATED[goal.treatment]}))"
