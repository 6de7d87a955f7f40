"""The recipes, how deep an item is, and which action brings a goal nearer.

`recipes.json` holds crafting commands as the game shows them. It has no circles: following ingredients always ends at
items that nothing makes, which are found with `get`.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import product

COUNT = r"[1-9][0-9]{0,3}"
ITEM = r"[a-z]+(?:[ _][a-z]+)*"
CRAFT = rf"craft (?P<made>{COUNT}) (?P<goods>{ITEM}?) using (?P<parts>{COUNT} {ITEM}(?:(?:, ?| ){COUNT} {ITEM})*)"
GET = rf"get (?P<count>{COUNT}) (?P<item>{ITEM})"


@dataclass(frozen=True)
class Recipe:
    """`count` of `item` from the ingredients, which stand in the order of their names."""

    item: str
    count: int
    ingredients: tuple[tuple[str, int], ...]

    @cached_property
    def command(self) -> str:
        """The action that crafts this."""
        parts = ", ".join(f"{count} {name}" for name, count in self.ingredients)
        return f"craft {self.count} {self.item} using {parts}"

    @property
    def items(self) -> list[str]:
        """What it makes and all it uses."""
        return [self.item, *(name for name, _ in self.ingredients)]

    def missing(self, inventory: Mapping[str, int]) -> dict[str, int]:
        """How many of which ingredients the inventory lacks."""
        lacks = {name: count - inventory.get(name, 0) for name, count in self.ingredients}
        return {name: count for name, count in lacks.items() if count > 0}


def recipe_of(match: re.Match[str]) -> Recipe:
    """The recipe that a match of `CRAFT` spells, in whatever order its ingredients stand."""
    parts: Counter[str] = Counter()
    for count, name in re.findall(rf"({COUNT}) ({ITEM})", match["parts"], re.IGNORECASE):
        parts[item_name(name)] += int(count)
    return Recipe(item_name(match["goods"]), int(match["made"]), tuple(sorted(parts.items())))


def item_name(text: str) -> str:
    """The one spelling of a name: `Oak_Planks` is `oak planks`."""
    return text.lower().replace("_", " ")


class RecipeTable:
    """All recipes of the game: by the item they make (`by_item`), and by any item they make or use (`touching`).

    `kinds` are names that stand for any of some items in a recipe: `planks` for oak planks, birch planks and others.
    """

    def __init__(self, recipes: Sequence[Recipe], kinds: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.recipes = tuple(recipes)
        self.kinds = kinds or {}
        self.by_item: dict[str, list[Recipe]] = {}
        self.touching: dict[str, list[Recipe]] = {}
        for recipe in recipes:
            self.by_item.setdefault(recipe.item, []).append(recipe)
            for name in recipe.items:
                self.touching.setdefault(name, []).append(recipe)
        self.goals = tuple(sorted(self.by_item))
        self.found = set(self.touching) - set(self.by_item) - set(self.kinds)
        self._depths = dict.fromkeys(self.found, 0)

    def depth(self, item: str) -> int:
        """How many crafts in a row the item, or any of a kind, needs at least; 0 for what is found."""
        if item in self.kinds:
            return min(self.depth(name) for name in self.kinds[item])
        if item not in self._depths:
            self._depths[item] = min(self.recipe_depth(recipe) for recipe in self.by_item[item])
        return self._depths[item]

    def recipe_depth(self, recipe: Recipe) -> int:
        return 1 + max(self.depth(name) for name, _ in recipe.ingredients)

    def shallowest(self, item: str) -> list[Recipe]:
        """The recipes for an item that need the fewest crafts in a row."""
        return [recipe for recipe in self.by_item[item] if self.recipe_depth(recipe) == self.depth(item)]

    def settled(self, recipe: Recipe) -> list[Recipe]:
        """The ways to follow a recipe, with one item for each kind in it; a recipe without kinds is its only way."""
        if not any(name in self.kinds for name, _ in recipe.ingredients):
            return [recipe]
        choices = [[(item, count) for item in self.kinds.get(name, (name,))] for name, count in recipe.ingredients]
        return [Recipe(recipe.item, recipe.count, tuple(sorted(parts))) for parts in product(*choices)]


@lru_cache
def recipe_table() -> RecipeTable:
    """The committed table."""
    text = (files(__package__) / "recipes.json").read_text(encoding="utf-8")
    return RecipeTable([_read(command) for command in json.loads(text)["recipes"]])


def _read(command: str) -> Recipe:
    match = re.fullmatch(CRAFT, command)
    if match is None:
        raise ValueError(f"recipes.json: {command!r} is not a crafting command")
    return recipe_of(match)
