"""A task of the caller's own, spelled out in its item id: `textcraft_own stick: craft 4 stick using 2 planks; …`."""

import re
from collections.abc import Sequence

from openmanus_rl.envs.textcraft.recipes import CRAFT, ITEM, Recipe, RecipeTable, item_name, recipe_of
from openmanus_rl.errors import UserError

PREFIX = "textcraft_own "
MAX_COMMANDS = 64
MAX_CHARACTERS = 300
"""Of one command."""


def own_item_id(commands: Sequence[str], goal: str) -> str:
    """The item id that spells the task; a `UserError` if it is none."""
    goal = item_name(goal.strip().removeprefix("minecraft:"))
    if len(goal) > MAX_CHARACTERS or not re.fullmatch(ITEM, goal):
        raise UserError(f"the goal {goal[:MAX_CHARACTERS]!r} is no name of an item", "For example: oak planks.")
    if not 1 <= len(commands) <= MAX_COMMANDS:
        raise UserError(f"{len(commands)} commands are given", f"A task has 1 to {MAX_COMMANDS}, one a line.")
    recipes = list(dict.fromkeys(map(_read, commands)))
    if goal not in table_without_circles(recipes).by_item:
        raise UserError(f"the commands do not lead to {goal}", "What no command makes is there; all else must follow.")
    return f"{PREFIX}{goal}: {'; '.join(recipe.command for recipe in recipes)}"


def read_own_item(item_id: str) -> tuple[str, list[Recipe]]:
    """The goal and the recipes that an item id spells."""
    goal, _, commands = item_id.removeprefix(PREFIX).partition(": ")
    if own_item_id(commands.split("; "), goal) != item_id:
        raise UserError(
            f"{item_id[:MAX_CHARACTERS]!r} is not spelled as an item id is",
            f"For example: {PREFIX}oak planks: craft 4 oak planks using 1 oak log",
        )
    return goal, [_read(command) for command in commands.split("; ")]


def table_without_circles(recipes: Sequence[Recipe]) -> RecipeTable:
    """For each item that can be made of what nothing makes, the recipes that do so in the fewest crafts in a row."""
    made = {recipe.item for recipe in recipes}
    kept: list[Recipe] = []
    while further := [
        recipe for recipe in recipes if recipe.item in made and not any(name in made for name, _ in recipe.ingredients)
    ]:
        kept += further
        made -= {recipe.item for recipe in further}
    return RecipeTable(kept)


def _read(command: str) -> Recipe:
    match = re.fullmatch(CRAFT, command.strip(), re.IGNORECASE) if len(command) <= MAX_CHARACTERS else None
    if match is None:
        raise UserError(
            f"{command[:MAX_CHARACTERS]!r} is not a crafting command", "For example: craft 4 oak planks using 1 oak log"
        )
    return recipe_of(match)
