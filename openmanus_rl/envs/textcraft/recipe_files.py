"""Recipes from a directory of Minecraft's own recipe files, as AgentGym's TextCraft has them.

Files are read in the order of their names, so that a directory means the same tasks on every machine. A recipe that
would close a circle (ingots from nuggets, nuggets from ingots) is left out, as is the unpacking of blocks. Where a
recipe names a tag, any craftable item of the group with that name will do; a tag without such items is itself found.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from openmanus_rl.envs.textcraft.recipes import ITEM, Recipe, RecipeTable
from openmanus_rl.errors import UserError


class _Read(NamedTuple):
    """What one file says."""

    recipe: Recipe
    group: str | None
    """The group of what it makes."""
    tags: frozenset[str]
    """Ingredients that are tags."""


@lru_cache
def recipes_in(directory: str) -> RecipeTable:
    """The table of a directory of recipe files, or of the `recipes` directory in it."""
    place = Path(directory)
    place = place / "recipes" if (place / "recipes").is_dir() else place
    paths = sorted(place.glob("*.json"))
    if not paths:
        raise UserError(f"textcraft: there are no recipe files (*.json) in {place}", "Look at env.options.recipes_dir.")
    read = [said for said in map(_read, paths) if said is not None and not _unpacks_a_block(said.recipe)]
    groups: dict[str, set[str]] = {}
    for said in read:
        if said.group is not None and said.group != said.recipe.item:
            groups.setdefault(said.group, set()).add(said.recipe.item)
    kept = _without_circles(read, groups)
    made = {said.recipe.item for said in kept}
    tags = {tag for said in kept for tag in said.tags}
    kinds = {tag: tuple(sorted(groups.get(tag, set()) & made)) for tag in sorted(tags - made)}
    return RecipeTable([said.recipe for said in kept], {kind: items for kind, items in kinds.items() if items})


def _without_circles(read: list[_Read], groups: Mapping[str, set[str]]) -> list[_Read]:
    """The recipes that do not need, however far down, what they make."""
    uses: dict[str, set[str]] = {}

    def needs(name: str, item: str) -> bool:
        frontier, met = [name], {name}
        while frontier:
            here = frontier.pop()
            if here == item:
                return True
            further = (uses.get(here, set()) | groups.get(here, set())) - met
            met |= further
            frontier += further
        return False

    kept = []
    for said in read:
        parts = {name for name, _ in said.recipe.ingredients}
        if not any(needs(name, said.recipe.item) for name in parts):
            uses.setdefault(said.recipe.item, set()).update(parts)
            kept.append(said)
    return kept


def _read(path: Path) -> _Read | None:
    """What a file says; None if it is not about crafting, or names what no action can name."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        kind = str(told["type"]).removeprefix("minecraft:")
        if kind == "crafting_shaped":
            marks = Counter("".join(told["pattern"]))
            parts = [(_ingredient(thing), marks[mark]) for mark, thing in told["key"].items()]
        elif kind == "crafting_shapeless":
            parts = [(_ingredient(thing), 1) for thing in told["ingredients"]]
        else:
            return None
        result = told["result"] if isinstance(told["result"], dict) else {"item": told["result"]}
        item, count = _name(result.get("item") or result["id"]), int(result.get("count") or 1)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"textcraft: {path} is not a recipe of Minecraft: {error!r}") from error
    counts: Counter[str] = Counter()
    for (name, _), number in parts:
        counts[name] += number
    if not counts or not all(re.fullmatch(ITEM, name) for name in (item, *counts)):
        return None
    group = _name(told["group"]) if told.get("group") else None
    return _Read(
        Recipe(item, count, tuple(sorted(counts.items()))),
        group,
        frozenset(name for (name, is_tag), _ in parts if is_tag),
    )


def _ingredient(thing: Any) -> tuple[str, bool]:
    """The name of an ingredient, and whether it is a tag; the first where there is a choice."""
    if isinstance(thing, list):
        return _ingredient(thing[0])
    if isinstance(thing, str):
        return _name(thing.removeprefix("#")), thing.startswith("#")
    return (_name(thing["item"]), False) if "item" in thing else (_name(thing["tag"]), True)


def _name(identifier: str) -> str:
    return identifier.removeprefix("minecraft:").replace("_", " ")


def _unpacks_a_block(recipe: Recipe) -> bool:
    return len(recipe.ingredients) == 1 and recipe.ingredients[0][0].endswith(" block")
