"""What a household is made of: rooms, their receptacles, and things with where they go and what is done to them.

Kinds are ALFRED's words in lower case, as ALFWorld shows them. A thing or receptacle of a game is a kind and a number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave", "safe"})

TOOLS: Mapping[str, str] = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""What each treatment is done with."""

LAMP = "desklamp"

ROOMS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "kitchen": {
        "cabinet": (3, 9),
        "coffeemachine": (1, 1),
        "countertop": (1, 3),
        "diningtable": (0, 1),
        "drawer": (2, 6),
        "fridge": (1, 1),
        "garbagecan": (1, 1),
        "microwave": (1, 1),
        "shelf": (0, 3),
        "sidetable": (0, 1),
        "sinkbasin": (1, 1),
        "stoveburner": (2, 4),
        "toaster": (1, 1),
    },
    "livingroom": {
        "armchair": (1, 2),
        "cabinet": (0, 4),
        "coffeetable": (1, 1),
        "diningtable": (0, 1),
        "drawer": (2, 6),
        "dresser": (0, 1),
        "garbagecan": (1, 1),
        "ottoman": (0, 1),
        "safe": (0, 1),
        "shelf": (0, 4),
        "sidetable": (1, 2),
        "sofa": (1, 1),
        "tvstand": (0, 1),
    },
    "bedroom": {
        "armchair": (0, 1),
        "bed": (1, 1),
        "desk": (1, 2),
        "drawer": (2, 6),
        "dresser": (0, 1),
        "garbagecan": (1, 1),
        "laundryhamper": (0, 1),
        "safe": (0, 1),
        "shelf": (0, 5),
        "sidetable": (1, 2),
    },
    "bathroom": {
        "bathtubbasin": (0, 1),
        "cabinet": (2, 4),
        "countertop": (1, 1),
        "drawer": (0, 3),
        "garbagecan": (1, 1),
        "handtowelholder": (1, 2),
        "shelf": (0, 2),
        "sinkbasin": (1, 2),
        "toilet": (1, 1),
        "toiletpaperhanger": (1, 1),
        "towelholder": (1, 1),
    },
}
"""The receptacles of each room: how many of a kind, at least and at most."""


@dataclass(frozen=True)
class ThingKind:
    """A kind of thing: the rooms it is found in, the receptacles that take it, and the treatments that work on it."""

    name: str
    rooms: tuple[str, ...]
    places: tuple[str, ...]
    treatments: tuple[str, ...]


_THINGS = """
apple         | kitchen                     | countertop diningtable sidetable fridge microwave garbagecan sinkbasin | clean heat cool
bread         | kitchen                     | countertop diningtable sidetable fridge microwave garbagecan           | heat cool
egg           | kitchen                     | countertop diningtable sidetable fridge microwave garbagecan sinkbasin | clean heat cool
lettuce       | kitchen                     | countertop diningtable sidetable fridge garbagecan sinkbasin           | clean cool
potato        | kitchen                     | countertop diningtable sidetable fridge microwave garbagecan sinkbasin | clean heat cool
tomato        | kitchen                     | countertop diningtable sidetable fridge microwave garbagecan sinkbasin | clean heat cool
bowl          | kitchen livingroom bedroom  | cabinet shelf countertop diningtable sidetable coffeetable fridge sinkbasin desk dresser | clean cool
cup           | kitchen                     | cabinet shelf countertop diningtable sidetable fridge microwave sinkbasin | clean heat cool
mug           | kitchen bedroom             | cabinet shelf countertop diningtable sidetable fridge microwave sinkbasin coffeemachine desk drawer | clean heat cool
plate         | kitchen                     | cabinet shelf countertop diningtable sidetable fridge microwave sinkbasin | clean heat cool
pan           | kitchen                     | stoveburner cabinet countertop diningtable fridge sinkbasin            | clean cool
pot           | kitchen                     | stoveburner cabinet countertop diningtable fridge sinkbasin shelf      | clean cool
kettle        | kitchen                     | stoveburner cabinet countertop diningtable sinkbasin                   | clean
butterknife   | kitchen                     | drawer countertop diningtable sidetable sinkbasin                      | clean
fork          | kitchen                     | drawer countertop diningtable sidetable sinkbasin                      | clean
knife         | kitchen                     | drawer countertop diningtable sidetable sinkbasin                      | clean
ladle         | kitchen                     | drawer countertop diningtable sidetable sinkbasin                      | clean
spatula       | kitchen                     | drawer countertop diningtable sidetable sinkbasin                      | clean
spoon         | kitchen                     | drawer countertop diningtable sidetable sinkbasin                      | clean
dishsponge    | kitchen                     | drawer cabinet countertop diningtable shelf sinkbasin garbagecan       | clean
glassbottle   | kitchen                     | cabinet countertop diningtable fridge shelf garbagecan                 | cool
peppershaker  | kitchen                     | drawer cabinet countertop diningtable sidetable shelf                  |
saltshaker    | kitchen                     | drawer cabinet countertop diningtable sidetable shelf                  |
winebottle    | kitchen                     | cabinet countertop diningtable fridge garbagecan                       | cool
vase          | kitchen livingroom          | shelf coffeetable sidetable diningtable cabinet safe dresser           |
statue        | livingroom                  | shelf coffeetable sidetable diningtable dresser tvstand safe cabinet   |
book          | livingroom bedroom          | shelf coffeetable sidetable diningtable sofa bed desk dresser drawer armchair |
box           | livingroom                  | coffeetable sidetable diningtable sofa armchair ottoman dresser        |
cd            | bedroom                     | shelf drawer desk dresser sidetable safe garbagecan                    |
cellphone     | livingroom bedroom          | shelf drawer desk dresser sidetable coffeetable bed sofa safe          |
creditcard    | livingroom bedroom          | shelf drawer desk dresser sidetable coffeetable armchair sofa          |
keychain      | livingroom bedroom          | shelf drawer desk dresser sidetable coffeetable safe ottoman           |
laptop        | livingroom bedroom          | desk dresser bed sofa coffeetable diningtable ottoman armchair         |
newspaper     | livingroom                  | coffeetable sidetable sofa armchair ottoman drawer garbagecan          |
pen           | bedroom                     | shelf drawer desk dresser sidetable garbagecan                         |
pencil        | bedroom                     | shelf drawer desk dresser sidetable garbagecan                         |
pillow        | livingroom bedroom          | sofa armchair bed ottoman                                              |
remotecontrol | livingroom                  | shelf drawer coffeetable sidetable sofa armchair ottoman tvstand dresser |
tissuebox     | livingroom bedroom bathroom | shelf coffeetable sidetable desk dresser drawer cabinet countertop toilet |
watch         | livingroom bedroom          | shelf drawer coffeetable sidetable desk dresser safe                   |
alarmclock    | bedroom                     | shelf desk dresser sidetable                                           |
candle        | bathroom                    | shelf drawer cabinet countertop toilet bathtubbasin                    |
cloth         | bathroom                    | shelf drawer cabinet countertop bathtubbasin sinkbasin garbagecan      | clean
handtowel     | bathroom                    | handtowelholder cabinet countertop sinkbasin                           |
soapbar       | bathroom                    | drawer cabinet countertop toilet bathtubbasin sinkbasin garbagecan     | clean
soapbottle    | kitchen bathroom            | drawer cabinet countertop toilet shelf garbagecan                      |
spraybottle   | bathroom                    | drawer cabinet countertop toilet shelf garbagecan                      |
toiletpaper   | bathroom                    | toiletpaperhanger drawer cabinet countertop toilet shelf garbagecan    |
towel         | bathroom                    | towelholder cabinet countertop bathtubbasin                            |
"""  # noqa: E501 - a table is read across


def _read_things() -> dict[str, ThingKind]:
    kinds = {}
    for line in _THINGS.strip().splitlines():
        name, rooms, places, treatments = (part.split() for part in line.split("|"))
        kinds[name[0]] = ThingKind(name[0], tuple(rooms), tuple(places), tuple(treatments))
    return kinds


THINGS: Mapping[str, ThingKind] = _read_things()

LAMP_PLACES = ("desk", "sidetable", "dresser", "shelf", "coffeetable")


def kind_of(name: str) -> str:
    """`mug` of `mug 2`."""
    return name.partition(" ")[0]


def listed(names: list[str]) -> str:
    """`a mug 1, a pen 2, and a pen 1`, or `nothing`: ALFWorld's lists."""
    words = [f"a {name}" for name in names]
    if not words:
        return "nothing"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}, and {words[-1]}"
