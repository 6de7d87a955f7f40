"""The game of TextCraft as a world."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from openmanus_rl.envs.base import (
    ActionForm,
    ActionGrammar,
    Environment,
    EpisodeOver,
    Isolation,
    Observation,
    Split,
    StepResult,
    Task,
    split_of,
)
from openmanus_rl.envs.items import item_number, pick, seeded, shuffled
from openmanus_rl.envs.textcraft.own import PREFIX as OWN
from openmanus_rl.envs.textcraft.own import own_item_id, read_own_item, table_without_circles
from openmanus_rl.envs.textcraft.planner import Get, Plan, apply, make_plan
from openmanus_rl.envs.textcraft.recipe_files import recipes_in
from openmanus_rl.envs.textcraft.recipes import CRAFT, GET, Recipe, RecipeTable, item_name, recipe_of, recipe_table
from openmanus_rl.envs.textcraft.wording import AgentGymWording, Wording, dealt_names
from openmanus_rl.errors import UserError

WORDINGS: Mapping[str, type[Wording]] = {"own": Wording, "agentgym": AgentGymWording}


@dataclass(frozen=True)
class CraftingTask:
    """What item n asks for: a plan that reaches the goal, and the recipes shown, the plan's among them."""

    plan: Plan
    shown: tuple[Recipe, ...]

    @property
    def goal(self) -> str:
        return self.plan.goal

    def prompt(self, wording: Wording) -> str:
        commands = "\n".join(wording.command(recipe) for recipe in self.shown)
        return f"Crafting commands:\n{commands}\n\n{wording.goal(self.goal)}"


def make_task(number: int, distractors: int, table: RecipeTable | None = None) -> CraftingTask:
    """Task `number`: the goals in order, then all of them again as new variants with other recipes and distractors."""
    plan = plan_of(number, table or recipe_table())
    chance = seeded(f"textcraft shown {number}")
    shown = [*plan.listed.values(), *needless_recipes(plan, distractors, chance)]
    return CraftingTask(plan, tuple(shuffled(shown, chance)))


def own_task(item_id: str) -> CraftingTask:
    """The task that an item id spells."""
    goal, recipes = read_own_item(item_id)
    return CraftingTask(make_plan(goal, table_without_circles(recipes), seeded(item_id)), tuple(recipes))


def plan_of(number: int, table: RecipeTable) -> Plan:
    """The plan whose recipes task `number` shows."""
    return make_plan(table.goals[number % len(table.goals)], table, seeded(f"textcraft plan {number}"))


def needless_recipes(plan: Plan, count: int, chance: random.Random) -> list[Recipe]:
    """Recipes that make or use something of the plan, without being part of it; any others where those are too few."""
    table = plan.table
    needed = {recipe.command for recipe in plan.listed.values()}
    touched = {name for recipe in plan.listed.values() for name in recipe.items}
    related = {recipe.command: recipe for name in sorted(touched) for recipe in table.touching[name]}
    chosen = {command: related[command] for command in shuffled(sorted(related.keys() - needed), chance)[:count]}
    count = min(count, len(table.recipes) - len(needed))
    while len(chosen) < count:
        recipe = pick(table.recipes, chance.random())
        if recipe.command not in needed:
            chosen[recipe.command] = recipe
    return list(chosen.values())


@dataclass
class _Session:
    item_id: str
    inventory: dict[str, int] = field(default_factory=dict)
    turns: int = 0
    over: bool = False


class TextCraft(Environment):
    """Craft the goal. The first observation lists crafting commands, some needed and some not, and names the goal.

    Item `textcraft_<n>` is one of ours. `textcraft_own stick: craft 4 stick using 2 planks; …` is a task of your own.

    `get 2 oak log` finds items that no recipe makes. `craft 4 oak planks using 1 oak log` is one of the commands
    listed, to the letter and the number; it uses up its ingredients. `inventory` tells what is there. Crafting the
    goal pays 1 and ends the episode; nothing else pays or costs. After `max_steps` turns the episode is cut.

    Options: `min_depth` and `max_depth` (how many crafts in a row a goal needs), `distractors` (how many commands are
    listed that the goal does not need), `max_steps`, `variants` (how many tasks a goal gives, with other distractors
    and, where there are several, other recipes), `names` (`joined`: an item is one word, `oak_planks`), `renamed`
    (items bear one another's names, in each task others: what a recipe takes can only be read), `recipes_dir` (a
    directory of Minecraft's recipe files, such as AgentGym's, in place of the recipes here), `wording` (`agentgym`:
    what is carried and what failed is told as AgentGym's server does). Recipes from files may name a kind of items:
    `craft 4 stick using 2 planks` is done with one sort of planks, `craft 4 stick using 2 oak planks`.
    """

    name: ClassVar[str] = "textcraft"
    grammar: ClassVar[ActionGrammar] = ActionGrammar(
        (
            ActionForm("get 1 oak log", GET),
            ActionForm("craft 4 oak planks using 1 oak log", CRAFT),
            ActionForm("inventory", "inventory"),
        )
    )
    success_rule: ClassVar[str] = "the goal item is crafted within max_steps turns"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    isolation: ClassVar[Isolation] = "inline"

    def __init__(
        self,
        min_depth: int = 1,
        max_depth: int = 4,
        distractors: int = 8,
        max_steps: int = 30,
        variants: int = 1,
        names: Literal["spaced", "joined"] = "spaced",
        renamed: bool = False,
        recipes_dir: str | None = None,
        wording: Literal["own", "agentgym"] = "own",
    ) -> None:
        if not 1 <= min_depth <= max_depth:
            raise UserError(
                f"textcraft: min_depth is {min_depth} and max_depth is {max_depth}",
                "A goal is at least 1 deep, and the smallest depth comes first; the deepest goals are 4 deep.",
            )
        if not 0 <= distractors <= 100:
            raise UserError(f"textcraft: distractors is {distractors}", "Up to 100 needless commands can be listed.")
        if max_steps < 1:
            raise UserError(f"textcraft: max_steps is {max_steps}", "An episode needs at least one turn.")
        if variants < 1:
            raise UserError(f"textcraft: variants is {variants}", "A goal gives at least one task.")
        if names not in ("spaced", "joined"):
            raise UserError(f"textcraft: names is {names!r}", "It is spaced (oak planks) or joined (oak_planks).")
        if wording not in WORDINGS:
            raise UserError(f"textcraft: wording is {wording!r}", "It is own or agentgym.")
        self.min_depth = min_depth
        self.max_depth = max_depth
        self.distractors = distractors
        self.max_steps = max_steps
        self.variants = variants
        self.joined = names == "joined"
        self.renamed = renamed
        self.wording = wording
        self.table = recipe_table() if recipes_dir is None else recipes_in(recipes_dir)
        self._present: _Session | None = None

    def instructions(self) -> str:
        return f"Craft the goal. Get what no command makes. Actions, for example: {self.grammar.describe()}."

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """The variants of every goal of the split that lies between the depths and can be crafted in `max_steps`."""
        world = cls(**options)
        table = world.table
        for number in range(world.variants * len(table.goals)):
            goal = table.goals[number % len(table.goals)]
            right_depth = world.min_depth <= table.depth(goal) <= world.max_depth
            if split_of(goal) == split and right_depth and plan_of(number, table).turns() <= world.max_steps:
                yield f"{cls.name}_{number}"

    def own_item(self, commands: str, goal: str) -> str:
        """The item that asks for the goal with these commands, one a line."""
        return own_item_id(commands.strip().split("\n"), goal)

    def reset(self, task: Task) -> Observation:
        self._begin(task.item_id)
        return Observation(self._task.prompt(self._wording))

    def step(self, action: str) -> StepResult:
        session = self._session
        if session.over:
            raise EpisodeOver(f"{session.item_id} is over; call reset")
        session.turns += 1
        text, info = self._act(action)
        success = self._task.goal in session.inventory
        truncated = not success and session.turns >= self.max_steps
        session.over = success or truncated
        return StepResult(Observation(text), float(success), success, truncated, success, info)

    def state_key(self) -> str:
        """The goal and the inventory; turns are left out, since a state is worth comparing whenever it was reached."""
        return f"{self._task.goal}: {self._wording.carried(self._session.inventory) or 'nothing'}"

    def difficulty(self) -> str:
        """How many crafts in a row the goal needs."""
        return f"depth_{self._task.plan.table.depth(self._task.goal)}"

    def expert_action(self) -> str:
        return self._wording.command(self._task.plan.next_action(self._session.inventory))

    def expert_thought(self) -> str:
        """The goal's command, then that of an ingredient which has to be crafted first, and so on."""
        commands = self._task.plan.commands_in_work(self._session.inventory)
        return " but first ".join(map(self._wording.command, commands))

    def random_action(self, uniform: float) -> str:
        """Any amount of a found item that a listed command asks for, any command that can be crafted, or a look."""
        shown, inventory, table = self._task.shown, self._session.inventory, self._task.plan.table
        gets = [Get(name, count) for recipe in shown for name, count in recipe.ingredients if name in table.found]
        ways = [way for recipe in shown for way in table.settled(recipe)]
        crafts = [way for way in ways if not way.missing(inventory)]
        possible: list[Get | Recipe] = [*dict.fromkeys(gets), *crafts]
        return pick(["inventory", *(self._wording.command(action) for action in possible)], uniform)

    def snapshot(self) -> dict[str, Any]:
        return asdict(self._session)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self._begin(snapshot["item_id"])
        self._present = _Session(snapshot["item_id"], dict(snapshot["inventory"]), snapshot["turns"], snapshot["over"])

    def render(self) -> str:
        return f"{self._task.prompt(self._wording)}\nTurn {self._session.turns} of {self.max_steps}. {self._look()}"

    @property
    def _session(self) -> _Session:
        if self._present is None:
            raise EpisodeOver("textcraft: no episode has begun; call reset")
        return self._present

    def _begin(self, item_id: str) -> None:
        names: Mapping[str, str] = {}
        if item_id.startswith(OWN):
            self._task = own_task(item_id)
        else:
            number = item_number(self.name, item_id)
            self._task = make_task(number, self.distractors, self.table)
            names = dealt_names(self.table, number) if self.renamed else {}
        self._wording = WORDINGS[self.wording](self.joined, names)
        self._present = _Session(item_id)

    def _act(self, action: str) -> tuple[str, dict[str, Any]]:
        """Do the action; what is answered, and the reason if it is none of this world's."""
        match = self.grammar.parse(action)
        if match is None:
            return self._wording.no_action(action), {"invalid": f"not an action such as {self.grammar.describe()}"}
        parts = match.groupdict()
        if "goods" in parts:
            return self._craft(self._wording.recipe(recipe_of(match))), {}
        if "item" in parts:
            return self._get(Get(self._wording.item(item_name(parts["item"])), int(parts["count"]))), {}
        return self._look(), {}

    def _craft(self, recipe: Recipe) -> str:
        listed = any(recipe in self._task.plan.table.settled(shown) for shown in self._task.shown)
        missing = recipe.missing(self._session.inventory)
        if missing or not listed:
            return self._wording.not_crafted(recipe, listed, missing)
        apply(recipe, self._session.inventory)
        return self._wording.crafted(recipe)

    def _get(self, get: Get) -> str:
        if get.item not in self._task.plan.table.found:
            return f"Could not find {self._wording.name(get.item)}"
        apply(get, self._session.inventory)
        return f"Got {get.count} {self._wording.name(get.item)}"

    def _look(self) -> str:
        return self._wording.inventory(self._session.inventory)
