"""How a task speaks: in our words or AgentGym's; with one word an item, or several; under their names, or others."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from openmanus_rl.envs.items import seeded, shuffled
from openmanus_rl.envs.textcraft.planner import Get
from openmanus_rl.envs.textcraft.recipes import Recipe, RecipeTable


@dataclass(frozen=True)
class Wording:
    """What items are called in one task, and what is meant by a name."""

    joined: bool = False
    """An item is one word, `oak_planks`, and no comma or full stop touches it: to a tokenizer it is always the same."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """The name that each item bears instead of its own."""

    def name(self, item: str) -> str:
        alias = self.aliases.get(item, item)
        return alias.replace(" ", "_") if self.joined else alias

    def command(self, action: Get | Recipe) -> str:
        """The action that does it."""
        if isinstance(action, Get):
            return f"get {action.count} {self.name(action.item)}"
        parts = self.amounts(dict(action.ingredients))
        return f"craft {action.count} {self.name(action.item)} using {parts}"

    def amounts(self, items: Mapping[str, int]) -> str:
        return (" " if self.joined else ", ").join(f"{count} {self.name(item)}" for item, count in items.items())

    def carried(self, items: Mapping[str, int]) -> str:
        """An inventory, in the order of the items' own names."""
        ordered = dict(sorted(items.items()))
        if self.joined:
            return self.amounts(ordered)
        return " ".join(f"[{self.name(item)}] ({count})" for item, count in ordered.items())

    def crafted(self, recipe: Recipe) -> str:
        prefix = "" if self.joined else "minecraft:"
        return f"Crafted {recipe.count} {prefix}{self.name(recipe.item).replace(' ', '_')}"

    def not_crafted(self, recipe: Recipe, listed: bool, missing: Mapping[str, int]) -> str:
        """Why a command is not done: it is not one of the task's, or something lacks for it."""
        reason = f"{self.amounts(missing)} missing" if listed else "that command is not listed"
        return f"Could not craft {self.name(recipe.item)}: {reason}"

    def no_action(self, action: str) -> str:
        return "Could not execute that"

    def inventory(self, items: Mapping[str, int]) -> str:
        return f"Inventory: {self.carried(items) or 'nothing'}"

    def goal(self, item: str) -> str:
        return f"Goal: craft {self.name(item)}" + ("" if self.joined else ".")

    def item(self, name: str) -> str:
        """The item that bears a name; the name itself where none does."""
        return self._items.get(name, name)

    def recipe(self, spoken: Recipe) -> Recipe:
        """The recipe that is meant by one under the names of this task."""
        parts = sorted((self.item(name), count) for name, count in spoken.ingredients)
        return Recipe(self.item(spoken.item), spoken.count, tuple(parts))

    @cached_property
    def _items(self) -> dict[str, str]:
        return {alias: item for item, alias in self.aliases.items()}


class AgentGymWording(Wording):
    """The answers of AgentGym's server, to the letter."""

    def not_crafted(self, recipe: Recipe, listed: bool, missing: Mapping[str, int]) -> str:
        item = f"minecraft:{self.name(recipe.item).replace(' ', '_')}"
        if missing:
            return f"Could not find enough items to craft {item}"
        return (
            "Could not find a valid recipe for "
            f"ItemTagWithCount(item_tag=ItemTag(tag=None, item_id='{item}'), count={recipe.count})"
        )

    def no_action(self, action: str) -> str:
        return f"Could not execute {action}"

    def inventory(self, items: Mapping[str, int]) -> str:
        """In the order in which the items came."""
        carried = "".join(f"[{self.name(item)}] ({count}) " for item, count in items.items())
        return f"Inventory: {carried or 'You are not carrying anything.'}"


def dealt_names(table: RecipeTable, number: int) -> dict[str, str]:
    """Every item under the name of some item, dealt anew for each task."""
    items = sorted(table.touching)
    return dict(zip(items, shuffled(items, seeded(f"textcraft names {number}")), strict=True))
