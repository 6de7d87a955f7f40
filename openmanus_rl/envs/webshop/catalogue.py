"""The shop's own catalogue: made by chance from a seed, the same on every machine."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmanus_rl.envs.items import pick, seeded, shuffled
from openmanus_rl.envs.webshop.wares import Department, Kind, wares

_ASIN_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ASIN_COUNT = 36**9
_ASIN_STRIDE = 48_271_000_003
"""Shares no factor with the count, so no two products of a catalogue get the same asin."""


@dataclass(frozen=True)
class Wish:
    """How a buyer asks for a product: the words, the attributes and the values of options that they name."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """One thing on sale, with what each of its pages tells."""

    asin: str
    """Its name in clicks: ten letters and digits."""
    title: str
    query: str
    """What people who want such a thing search for."""
    path: str
    """The categories it is in, from wide to narrow, with `›` between them."""
    price: float
    price_tag: str
    attributes: tuple[str, ...]
    """What is true of it. No page lists these as such; title, features and description tell them."""
    options: Mapping[str, tuple[str, ...]]
    features: tuple[str, ...]
    description: str
    reviews: tuple[str, ...]
    rating: str
    wishes: tuple[Wish, ...]
    """For what buyers this is the product; each is a task."""

    @property
    def searchable(self) -> str:
        """The text that a search looks at."""
        values = [value for choices in self.options.values() for value in choices]
        return " ".join([self.title, self.description, *self.features, *values])


def make_catalogue(count: int, seed: int) -> list[Product]:
    """So many products; those of a smaller catalogue are the first ones of a larger."""
    kinds = [(department, kind) for department in wares().departments for kind in department.kinds]
    return [_product(number, kinds, seed) for number in range(count)]


def _product(number: int, kinds: Sequence[tuple[Department, Kind]], seed: int) -> Product:
    chance = seeded(f"webshop {seed} {number}")
    department, kind = pick(kinds, chance.random())
    brand = "".join(pick(wares().syllables, chance.random()) for _ in range(2 + int(chance.random() * 2))).capitalize()
    attributes = shuffled(department.attributes, chance)[: 4 + int(chance.random() * 3)]
    use = pick(department.uses, chance.random())
    options = {name: _some(department.options[name], chance) for name in kind.options}
    whole = int(kind.lowest * (kind.highest / kind.lowest) ** chance.random())
    price = whole + pick((0.0, 0.49, 0.95, 0.99), chance.random())
    return Product(
        asin="B" + _base36((seed * 1_000_003 + (number + 1) * _ASIN_STRIDE) % _ASIN_COUNT),
        title=f"{brand} {kind.name.title()}, {attributes[0].title()}, for {use.title()}",
        query=kind.query,
        path=f"{department.title} › {kind.shelf} › {kind.query.title()}",
        price=price,
        price_tag=f"${price:.2f}",
        attributes=tuple(attributes),
        options=options,
        features=tuple(f"{pick(wares().openings, chance.random())} {attribute}" for attribute in attributes[1:-1]),
        description=(
            f"{kind.name.capitalize()} by {brand} for {use}. Praised as: {attributes[-1]}. "
            f"{pick(department.sentences, chance.random())}"
        ),
        reviews=tuple(pick(wares().reviews, chance.random()) for _ in range(int(chance.random() * 3))),
        rating=f"{3 + 2 * chance.random():.1f} out of 5",
        wishes=(_wish(attributes, kind.query, use, options, chance),),
    )


def _wish(
    attributes: Sequence[str], query: str, use: str, options: Mapping[str, Sequence[str]], chance: random.Random
) -> Wish:
    wanted = shuffled(attributes, chance)[: 2 + int(chance.random() * 2)]
    chosen = {name: pick(values, chance.random()) for name, values in options.items()}
    text = f"Find me {', '.join(wanted)} {query} for {use}{with_options(chosen)}"
    return Wish(text, tuple(wanted), tuple(chosen.values()))


def with_options(options: Mapping[str, str]) -> str:
    """The options as an instruction ends with them: ` with color: navy, and size: large`."""
    return " with " + ", and ".join(f"{name}: {value}" for name, value in options.items()) if options else ""


def _some(values: Sequence[str], chance: random.Random) -> tuple[str, ...]:
    """Three to seven of the values, in their usual order."""
    chosen = set(shuffled(values, chance)[: 3 + int(chance.random() * 5)])
    return tuple(value for value in values if value in chosen)


def _base36(number: int) -> str:
    text = ""
    for _ in range(9):
        number, digit = divmod(number, 36)
        text = _ASIN_DIGITS[digit] + text
    return text
