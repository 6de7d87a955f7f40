"""Planning: the next thing to get or craft on the way to a goal."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from openmanus_rl.envs.items import pick
from openmanus_rl.envs.textcraft.recipes import Recipe, RecipeTable


@dataclass(frozen=True)
class Get:
    """Find `count` of an item that nothing makes."""

    item: str
    count: int


@dataclass(frozen=True)
class Plan:
    """One recipe for the goal and for each item on the way to it."""

    goal: str
    recipes: Mapping[str, Recipe]
    listed: Mapping[str, Recipe]
    """The same recipes as they are shown, where kinds of items are not settled yet."""
    table: RecipeTable

    def next_action(self, inventory: Mapping[str, int]) -> Get | Recipe:
        """The first action of the way from this inventory to one more of the goal."""
        item, count = self._in_work(inventory)[-1]
        lacking = self._first_lacking(item, count, inventory)
        if lacking is None:
            return self.recipes[item]
        name, needed = lacking
        return Get(name, needed - inventory.get(name, 0))

    def commands_in_work(self, inventory: Mapping[str, int]) -> list[Recipe]:
        """The goal's command as it is listed, then that of an ingredient it lacks, down to the one that is next."""
        return [self.listed[item] for item, _ in self._in_work(inventory)]

    def turns(self) -> int:
        """How many actions the plan takes from an empty inventory."""
        inventory: dict[str, int] = {}
        turns = 0
        while not inventory.get(self.goal):
            apply(self.next_action(inventory), inventory)
            turns += 1
        return turns

    def _in_work(self, inventory: Mapping[str, int]) -> list[tuple[str, int]]:
        """What is to be crafted and how much of it there is to be: the goal, an ingredient of it that lacks, …"""
        chain = [(self.goal, inventory.get(self.goal, 0) + 1)]
        while (lacking := self._first_lacking(*chain[-1], inventory)) and lacking[0] in self.recipes:
            chain.append(lacking)
        return chain

    def _first_lacking(self, item: str, count: int, inventory: Mapping[str, int]) -> tuple[str, int] | None:
        """The ingredient to see to first for `count` of the item, and how much of it is needed; None: all are there.

        Deep ingredients come first: making them uses up shallower ones, never the other way round.
        """
        recipe = self.recipes[item]
        crafts = -(-(count - inventory.get(item, 0)) // recipe.count)
        for name, each in sorted(recipe.ingredients, key=lambda part: (-self.table.depth(part[0]), part[0])):
            if inventory.get(name, 0) < each * crafts:
                return name, each * crafts
        return None


def make_plan(goal: str, table: RecipeTable, chance: random.Random) -> Plan:
    """A plan along shallowest recipes; chance decides between equally shallow ones."""
    recipes: dict[str, Recipe] = {}
    listed: dict[str, Recipe] = {}
    wanted = [goal]
    while wanted:
        item = wanted.pop()
        if item in recipes or item in table.found:
            continue
        listed[item] = pick(table.shallowest(item), chance.random())
        ways = table.settled(listed[item])
        least = min(map(table.recipe_depth, ways))
        shallow = [way for way in ways if table.recipe_depth(way) == least]
        recipes[item] = pick(shallow, chance.random()) if len(ways) > 1 else ways[0]
        wanted += [name for name, _ in recipes[item].ingredients]
    return Plan(goal, recipes, listed, table)


def apply(action: Get | Recipe, inventory: dict[str, int]) -> None:
    """Do the action to the inventory, which must hold what it takes; items that run out leave it."""
    inventory[action.item] = inventory.get(action.item, 0) + action.count
    if isinstance(action, Recipe):
        for name, count in action.ingredients:
            inventory[name] -= count
            if not inventory[name]:
                del inventory[name]
