"""An encyclopedia of things that do not exist: people, places, organisations and works, and facts that link them.

Nobody can know an answer from elsewhere, every fact has one value, and the same pages are made on every machine.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from openmanus_rl.envs.items import pick, seeded, shuffled

Kind = Literal["person", "city", "country", "organisation", "work"]

SIZES: Mapping[Kind, int] = {"country": 30, "city": 160, "organisation": 160, "person": 500, "work": 400}


@dataclass(frozen=True)
class Relation:
    """A fact that every thing of a kind has."""

    name: str
    of: Kind
    to: Kind | Literal["value"]
    told: tuple[str, str]
    """Two ways to tell it: `{x}` is the thing, `{y}` the fact's value."""
    asked: str
    """The question for it."""
    phrase: str
    """Its value in words, to go on asking about; empty where it is no thing."""


RELATIONS: tuple[Relation, ...] = (
    Relation(
        "capital",
        "country",
        "city",
        ("The capital of {x} is {y}.", "Its government sits in the capital, {y}."),
        "What is the capital of {x}?",
        "the capital of {x}",
    ),
    Relation(
        "currency",
        "country",
        "value",
        ("People in {x} pay with the {y}.", "The currency is the {y}."),
        "What is the currency of {x}?",
        "",
    ),
    Relation(
        "anthem",
        "country",
        "person",
        ("The national anthem of {x} was composed by {y}.", "Its anthem is a melody by {y}."),
        "Who composed the national anthem of {x}?",
        "the composer of the national anthem of {x}",
    ),
    Relation(
        "country",
        "city",
        "country",
        ("{x} is a city in {y}.", "{x} lies in {y}."),
        "In which country is {x}?",
        "the country in which {x} lies",
    ),
    Relation(
        "mayor",
        "city",
        "person",
        ("The mayor of {x} is {y}.", "It is governed by mayor {y}."),
        "Who is the mayor of {x}?",
        "the mayor of {x}",
    ),
    Relation(
        "river",
        "city",
        "value",
        ("The river {y} flows through {x}.", "It was built on the banks of the {y}."),
        "Which river flows through {x}?",
        "",
    ),
    Relation(
        "seat",
        "organisation",
        "city",
        ("{x} has its seat in {y}.", "Its head office is in {y}."),
        "In which city does {x} have its seat?",
        "the city in which {x} has its seat",
    ),
    Relation(
        "founder",
        "organisation",
        "person",
        ("{x} was founded by {y}.", "Its founder is {y}."),
        "Who founded {x}?",
        "the founder of {x}",
    ),
    Relation(
        "founded",
        "organisation",
        "value",
        ("{x} was established in {y}.", "It goes back to the year {y}."),
        "In which year was {x} founded?",
        "",
    ),
    Relation(
        "birthplace",
        "person",
        "city",
        ("{x} was born in {y}.", "The birthplace of {x} is {y}."),
        "In which city was {x} born?",
        "the city where {x} was born",
    ),
    Relation(
        "teacher",
        "person",
        "person",
        ("{x} was taught by {y}.", "The teacher of {x} was {y}."),
        "Who taught {x}?",
        "the teacher of {x}",
    ),
    Relation(
        "employer",
        "person",
        "organisation",
        ("{x} works for {y}.", "For many years {x} has been with {y}."),
        "For which organisation does {x} work?",
        "the organisation that {x} works for",
    ),
    Relation(
        "birth year",
        "person",
        "value",
        ("The year of birth is {y}.", "{x} came to the world in {y}."),
        "In which year was {x} born?",
        "",
    ),
    Relation(
        "author",
        "work",
        "person",
        ("{x} was written by {y}.", "The author of {x} is {y}."),
        "Who wrote {x}?",
        "the author of {x}",
    ),
    Relation(
        "setting",
        "work",
        "city",
        ("The story takes place in {y}.", "{x} is set in {y}."),
        "In which city is {x} set?",
        "the city in which {x} is set",
    ),
    Relation(
        "publisher",
        "work",
        "organisation",
        ("{x} was published by {y}.", "Its publisher is {y}."),
        "Which organisation published {x}?",
        "the publisher of {x}",
    ),
)


@dataclass(frozen=True)
class Document:
    """A page: its title and its text."""

    title: str
    text: str


@dataclass(frozen=True)
class Encyclopedia:
    """All pages, and the facts behind them."""

    documents: tuple[Document, ...]
    kinds: Mapping[str, Kind]
    """Of every thing by its name."""
    facts: Mapping[tuple[str, str], str]
    """By a thing's name and the relation's."""


@lru_cache(maxsize=1)
def encyclopedia() -> Encyclopedia:
    """Made in a tenth of a second, once in a process."""
    chance = seeded("searchqa encyclopedia")
    taken: set[str] = set()
    names = {kind: [_name(kind, chance, taken) for _ in range(size)] for kind, size in SIZES.items()}
    kinds = {name: kind for kind, members in names.items() for name in members}
    facts: dict[tuple[str, str], str] = {}
    documents = []
    for name, kind in kinds.items():
        sentences = []
        for relation in (relation for relation in RELATIONS if relation.of == kind):
            value = _value(relation, name, names, facts, chance, taken)
            facts[name, relation.name] = value
            sentences.append(pick(relation.told, chance.random()).format(x=name, y=value))
        opening = f"{name} is {ARTICLES[kind]}."
        documents.append(Document(name, " ".join([opening, *shuffled(sentences, chance)])))
    return Encyclopedia(tuple(documents), kinds, facts)


ARTICLES: Mapping[Kind, str] = {
    "person": "a public figure",
    "city": "a city",
    "country": "a country",
    "organisation": "an organisation",
    "work": "a novel",
}

_SYLLABLES = (
    "ba be bi bo bu da de di do du fa fe fi fo ga ge go ha he hi ho ja jo ka ke ki ko ku la le li lo lu ma me mi mo mu "
    "na ne ni no nu pa pe pi po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa we wi za ze zi zo"
)
_ENDS: Mapping[str, str] = {
    "country": "nia land stan via ria",
    "city": "ton burg ville mouth stead",
    "river": "ra na le sk",
    "currency": "lar ning mark dell",
    "last": "man sen ski ley ard",
    "first": "a o i e an el is",
}
_TRADES = "Press Foundation Institute Company Academy Union Society Laboratories Archive Guild"
_ADJECTIVES = (
    "Silent Golden Hidden Broken Distant Burning Forgotten Crimson Hollow Endless Gentle Restless Frozen Secret"
)
_NOUNS = "Harbour Orchard Mirror Letter Bridge Garden Winter Voyage Lantern Kingdom Clock Island Tower Meadow Compass"


def _value(
    relation: Relation,
    name: str,
    names: Mapping[Kind, list[str]],
    facts: Mapping[tuple[str, str], str],
    chance: random.Random,
    taken: set[str],
) -> str:
    if relation.to == "value":
        if relation.name in ("founded", "birth year"):
            return str(1850 + int(chance.random() * 140))
        return _name(relation.name, chance, taken)
    if relation.name == "country":  # a capital lies in the country whose capital it is
        seats = {city: land for (land, what), city in facts.items() if what == "capital"}
        return seats.get(name) or pick(names["country"], chance.random())
    others = [other for other in names[relation.to] if other != name]
    if relation.name == "capital":
        governed = {city for (_, what), city in facts.items() if what == "capital"}
        others = [city for city in others if city not in governed]
    return pick(others, chance.random())


def _name(kind: str, chance: random.Random, taken: set[str]) -> str:
    """A name that nothing else has."""
    while True:
        name = _any_name(kind, chance)
        if name not in taken:
            taken.add(name)
            return name


def _any_name(kind: str, chance: random.Random) -> str:
    if kind == "person":
        return f"{_word('first', chance, 1)} {_word('last', chance, 2)}"
    if kind == "organisation":
        return f"{_word('city', chance, 1)} {pick(_TRADES.split(), chance.random())}"
    if kind == "work":
        owner = _word("first", chance, 2)
        return f"{owner}'s {pick(_ADJECTIVES.split(), chance.random())} {pick(_NOUNS.split(), chance.random())}"
    return _word(kind, chance, 2)


def _word(kind: str, chance: random.Random, syllables: int) -> str:
    stem = "".join(pick(_SYLLABLES.split(), chance.random()) for _ in range(syllables))
    return (stem + pick(_ENDS[kind].split(), chance.random())).capitalize()
