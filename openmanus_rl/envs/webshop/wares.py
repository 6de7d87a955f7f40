"""What the catalogue is made of, from wares.json: kinds of products, and what each department's may be like."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A kind of product; `query` is what people who want one search for."""

    name: str
    query: str
    shelf: str
    lowest: float
    highest: float
    options: tuple[str, ...]


@dataclass(frozen=True)
class Department:
    """A part of the shop."""

    name: str
    title: str
    attributes: tuple[str, ...]
    uses: tuple[str, ...]
    sentences: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    kinds: tuple[Kind, ...]


@dataclass(frozen=True)
class Wares:
    """All departments, and words that any product may need."""

    departments: tuple[Department, ...]
    syllables: tuple[str, ...]
    openings: tuple[str, ...]
    reviews: tuple[str, ...]


@lru_cache(maxsize=1)
def wares() -> Wares:
    read = json.loads(Path(__file__).with_name("wares.json").read_text(encoding="utf-8"))
    return Wares(
        departments=tuple(_department(entry) for entry in read["categories"]),
        syllables=tuple(read["syllables"].split()),
        openings=tuple(read["openings"]),
        reviews=tuple(read["reviews"]),
    )


def _department(entry: Mapping[str, Any]) -> Department:
    return Department(
        name=entry["name"],
        title=entry["title"],
        attributes=_listed(entry["attributes"]),
        uses=_listed(entry["uses"]),
        sentences=tuple(entry["sentences"]),
        options={name: _listed(values) for name, values in entry["options"].items()},
        kinds=tuple(
            Kind(name, query, shelf, lowest, highest, _listed(options))
            for shelf, lowest, highest, options, kinds in entry["shelves"]
            for name, query in (kind.split(" = ") for kind in _listed(kinds))
        ),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))
