"""Derive TextCraft's recipe table from the PyPI package `minecraft-data` (edition pc, version 1.16.2).

    pip install minecraft-data==3.20.0
    python scripts/derive_textcraft_recipes.py

Recipes that close a circle are left out (a block that turns back into ingots: the ingots are found instead), so that
every item has a depth and no plan goes round for ever.
"""

import json
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import minecraft_data

GAME_VERSION = "1.16.2"
TABLE = Path(__file__).parents[1] / "openmanus_rl" / "envs" / "textcraft" / "recipes.json"


class RawRecipe(NamedTuple):
    """What comes out, how many of it, and what goes in."""

    item: str
    count: int
    ingredients: tuple[tuple[str, int], ...]


def main() -> None:
    recipes = read_recipes()
    kept = without_circles(recipes)
    table = {
        "source": f"PyPI minecraft-data {version('minecraft-data')}, pc {GAME_VERSION}; see NOTICE.md",
        "recipes": [command(recipe) for recipe in kept],
    }
    TABLE.write_text(json.dumps(table, indent=0) + "\n", encoding="utf-8")
    print(f"{len(kept)} of {len(recipes)} recipes, {TABLE.stat().st_size} bytes")


def read_recipes() -> set[RawRecipe]:
    """All crafting recipes of the game, without their shapes on the crafting grid."""
    data = minecraft_data(GAME_VERSION)
    names = {number: item["name"].replace("_", " ") for number, item in data.items.items()}
    recipes = set()
    for variants in data.recipes.values():
        for variant in variants:
            cells = variant.get("ingredients") or [cell for row in variant["inShape"] for cell in row]
            ingredients = Counter(names[cell] for cell in cells if cell is not None)
            result = variant["result"]
            recipes.add(RawRecipe(names[result["id"]], result["count"], tuple(sorted(ingredients.items()))))
    return recipes


def without_circles(recipes: set[RawRecipe]) -> list[RawRecipe]:
    """The recipes, less those that lead round in a circle to an item that is as deep as what they make."""
    depths = item_depths(recipes, found_items(recipes))
    beneath = {item: items_beneath(item, recipes) for item in depths}

    def circular(recipe: RawRecipe) -> bool:
        return any(
            recipe.item in beneath[name] and depths[name] >= depths[recipe.item] for name, _ in recipe.ingredients
        )

    return sorted(recipe for recipe in recipes if not circular(recipe))


def found_items(recipes: set[RawRecipe]) -> set[str]:
    """The items that no recipe makes, and one of every circle that has no other beginning: the one used most."""
    used = Counter(name for recipe in recipes for name, _ in recipe.ingredients)
    made = {recipe.item for recipe in recipes}
    found = set(used) - made
    while stuck := made - set(item_depths(recipes, found)):
        found.add(max(sorted(stuck), key=used.__getitem__))
    return found


def item_depths(recipes: set[RawRecipe], found: set[str]) -> dict[str, int]:
    """How many crafts in a row an item is away from what is found; items that cannot be made are left out."""
    depths = dict.fromkeys(found, 0)
    for depth in range(1, len(recipes)):
        makeable = {
            recipe.item
            for recipe in recipes
            if recipe.item not in depths and all(name in depths for name, _ in recipe.ingredients)
        }
        if not makeable:
            break
        depths.update(dict.fromkeys(makeable, depth))
    return depths


def items_beneath(item: str, recipes: set[RawRecipe]) -> set[str]:
    """All that some recipe for the item, or for an ingredient of one, uses."""
    beneath: set[str] = set()
    frontier = {item}
    while frontier:
        used = {name for recipe in recipes if recipe.item in frontier for name, _ in recipe.ingredients}
        frontier = used - beneath
        beneath |= used
    return beneath


def command(recipe: RawRecipe) -> str:
    ingredients = ", ".join(f"{count} {name}" for name, count in recipe.ingredients)
    return f"craft {recipe.count} {recipe.item} using {ingredients}"


if __name__ == "__main__":
    main()
