"""TextCraft: its rules, its recipes, and that every task can be done."""

import json
import os
import subprocess
import sys

import pytest

from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.baselines import baseline_success, play
from openmanus_rl.envs.items import seeded
from openmanus_rl.envs.textcraft import TextCraft
from openmanus_rl.envs.textcraft.recipes import recipe_table
from openmanus_rl.envs.textcraft.world import make_task
from openmanus_rl.errors import UserError

OAK_PLANKS = "craft 4 oak planks using 1 oak log"


def number_of(goal: str) -> int:
    return recipe_table().goals.index(goal)


def started(goal: str, **options: object) -> TextCraft:
    """A task for the goal, in a variant whose listed commands include the plain ones the tests use."""
    world = TextCraft(**options)
    for variant in range(500):
        item_id = f"textcraft_{number_of(goal) + variant * len(recipe_table().goals)}"
        if OAK_PLANKS in world.reset(Task("textcraft", item_id)).text:
            return world
    raise AssertionError(f"no variant of {goal} lists {OAK_PLANKS}")


def said(world: TextCraft, action: str) -> str:
    return world.step(action).observation.text


def goal_of(item_id: str) -> str:
    return make_task(int(item_id.removeprefix("textcraft_")), 0).goal


def test_the_first_observation_lists_the_needed_commands_among_others_and_names_the_goal():
    task = make_task(number_of("chest"), distractors=8)
    text = TextCraft().reset(Task("textcraft", f"textcraft_{number_of('chest')}")).text
    heading, *commands, blank, goal = text.split("\n")
    assert (heading, blank, goal) == ("Crafting commands:", "", "Goal: craft chest.")
    assert {recipe.command for recipe in task.plan.recipes.values()} <= set(commands)
    assert len(commands) == len(set(commands)) == len(task.plan.recipes) + 8


@pytest.mark.parametrize("distractors", [0, 3, 100])
def test_as_many_needless_commands_are_listed_as_asked(distractors):
    for number in range(0, 551, 50):
        task = make_task(number, distractors)
        assert len(task.shown) == len({recipe.command for recipe in task.shown})
        assert len(task.shown) == len(task.plan.recipes) + distractors


def test_crafting_the_goal_pays_one_and_ends_the_episode():
    world = started("oak planks")
    assert said(world, "get 1 oak log") == "Got 1 oak log"
    result = world.step(OAK_PLANKS)
    assert result.observation.text == "Crafted 4 minecraft:oak_planks"
    assert (result.reward, result.terminated, result.truncated, result.success) == (1.0, True, False, True)
    with pytest.raises(EpisodeOver):
        world.step("inventory")


def test_crafting_uses_up_its_ingredients():
    world = started("oak slab")
    assert said(world, "inventory") == "Inventory: nothing"
    world.step("get 2 oak log")
    world.step(OAK_PLANKS)
    assert said(world, "inventory") == "Inventory: [oak log] (1) [oak planks] (4)"
    world.step(OAK_PLANKS)
    assert said(world, "inventory") == "Inventory: [oak planks] (8)"


def test_only_what_no_recipe_makes_can_be_found():
    world = started("oak slab")
    assert said(world, "get 3 diamond") == "Got 3 diamond"
    assert said(world, "get 1 oak planks") == "Could not find oak planks"
    assert said(world, "get 1 oak slab") == "Could not find oak slab"
    assert said(world, "get 1 unicorn") == "Could not find unicorn"
    assert said(world, "inventory") == "Inventory: [diamond] (3)"


def test_crafting_without_the_ingredients_says_what_is_missing():
    world = started("oak slab")
    assert said(world, OAK_PLANKS) == "Could not craft oak planks: 1 oak log missing"


@pytest.mark.parametrize(
    "command", ["craft 8 oak planks using 2 oak log", "craft 1 foo using 1 bar", "craft 1 diamond using 1 oak log"]
)
def test_a_command_that_is_not_listed_crafts_nothing(command):
    world = started("oak slab")
    world.step("get 5 oak log")
    assert said(world, command).startswith("Could not craft")
    assert said(world, "inventory") == "Inventory: [oak log] (5)"


def test_ingredients_may_stand_in_any_order_and_case():
    world = TextCraft()
    world.reset(Task("textcraft", f"textcraft_{number_of('acacia fence')}"))
    while not (action := world.expert_action()).startswith("craft 3 acacia fence"):
        world.step(action)
    assert action.endswith("using 4 acacia planks, 2 stick")
    assert world.step("Craft 3 Acacia Fence using 2 stick,4 acacia planks").success


@pytest.mark.parametrize(
    "action", ["", "nonsense", "get oak log", "get 0 oak log", "get -1 oak log", "craft oak planks"]
)
def test_what_is_no_action_pays_nothing_and_says_so(action):
    result = started("oak slab").step(action)
    assert (result.reward, result.done) == (0.0, False)
    assert result.info["invalid"]


def test_joined_names_are_words_that_nothing_touches_and_play_like_the_others():
    world = TextCraft(names="joined", distractors=2)
    shown = world.reset(Task("textcraft", f"textcraft_{number_of('acacia fence')}")).text
    assert shown.endswith("\n\nGoal: craft acacia_fence")
    assert "craft 3 acacia_fence using 4 acacia_planks 2 stick" in shown.split("\n")
    names = {name.replace(" ", "_") for name in recipe_table().touching}
    words = shown.replace("Crafting commands:", "").replace("Goal:", "").split()
    assert set(words) <= names | {"craft", "using"} | set(map(str, range(1, 65)))
    assert said(world, "get 3 stick") == "Could not find stick"
    assert said(world, "get 3 acacia_log") == "Got 3 acacia_log"
    assert said(world, "inventory") == "Inventory: 3 acacia_log"
    assert said(world, "craft 3 acacia_fence using 4 acacia_planks 2 stick").startswith("Could not craft acacia_fence")
    result = None
    while result is None or not result.done:
        result = world.step(world.expert_action())
    assert result.success
    assert result.observation.text == "Crafted 3 acacia_fence"


@pytest.mark.parametrize("names", ["spaced", "joined"])
def test_renamed_items_bear_other_names_in_each_task_and_the_plan_is_the_same(names):
    plain, renamed = TextCraft(names=names), TextCraft(names=names, renamed=True)
    goals, lengths = set(), []
    for variant in range(3):
        task = Task("textcraft", f"textcraft_{number_of('chest') + variant * len(recipe_table().goals)}")
        goals.add(renamed.reset(task).text.split("\n")[-1])
        plain.reset(task)
        for world in (plain, renamed):
            result, turns = None, 0
            while result is None or not result.done:
                result, turns = world.step(world.expert_action()), turns + 1
            assert result.success
            lengths.append(turns)
    assert len(goals) == 3, "the same goal under three names"
    assert lengths[0::2] == lengths[1::2]


def test_under_other_names_an_items_own_name_is_another_item():
    world = TextCraft(renamed=True)
    world.reset(Task("textcraft", f"textcraft_{number_of('oak planks')}"))
    needed = world.expert_action()
    assert needed.startswith("get")
    assert said(world, needed) == needed.replace("get", "Got")
    plain = TextCraft()
    plain.reset(Task("textcraft", f"textcraft_{number_of('oak planks')}"))
    assert plain.expert_action() != needed


def test_variants_give_a_goal_several_tasks_of_its_split():
    once = list(TextCraft.item_ids("validation", max_depth=2, max_steps=8))
    thrice = list(TextCraft.item_ids("validation", max_depth=2, max_steps=8, variants=3))
    assert thrice[: len(once)] == once
    assert {goal_of(item_id) for item_id in thrice} >= {goal_of(item_id) for item_id in once}
    assert len(set(thrice)) == len(thrice) > 2.5 * len(once)
    train = {goal_of(item_id) for item_id in TextCraft.item_ids("train", variants=3)}
    assert not train & {goal_of(item_id) for item_id in thrice}


def test_what_is_shown_is_what_is_parsed():
    assert all(form.shown in TextCraft().instructions() for form in TextCraft.grammar.forms)
    assert all(TextCraft.grammar.parse(form.shown) for form in TextCraft.grammar.forms)
    assert all(TextCraft.grammar.parse(recipe.command) for recipe in recipe_table().recipes)
    assert all(TextCraft.grammar.parse(f"get 1 {item}") for item in recipe_table().found)


def test_the_episode_is_cut_after_max_steps():
    world = started("oak slab", max_steps=3)
    results = [world.step("inventory") for _ in range(3)]
    assert [result.truncated for result in results] == [False, False, True]
    assert not results[-1].terminated


def test_nothing_can_be_asked_before_the_first_reset():
    with pytest.raises(EpisodeOver, match="reset"):
        TextCraft().step("inventory")


def test_recipes_have_no_circles():
    table = recipe_table()
    state: dict[str, str] = dict.fromkeys(table.found, "done")

    def visit(item: str) -> None:
        assert state.get(item) != "open", f"{item} is made of itself"
        if item not in state:
            state[item] = "open"
            for recipe in table.by_item[item]:
                for name, _ in recipe.ingredients:
                    visit(name)
            state[item] = "done"

    for goal in table.goals:
        visit(goal)


def test_the_table_is_the_committed_one():
    table = recipe_table()
    assert (len(table.recipes), len(table.goals)) == (1179, 551)
    assert {"oak log", "iron ingot", "diamond", "wheat"} <= table.found
    depths = [table.depth(goal) for goal in table.goals]
    assert [depths.count(depth) for depth in (1, 2, 3, 4)] == [144, 280, 116, 11]
    assert number_of("oak planks") == 343


def test_splits_share_no_goal():
    goals = [goal_of(item_id) for split in SPLITS for item_id in TextCraft.item_ids(split)]
    assert len(goals) == len(set(goals)) == 551


def test_goals_keep_to_the_depths_and_turns_asked_for():
    table = recipe_table()
    assert {table.depth(goal_of(i)) for i in TextCraft.item_ids("train", min_depth=2, max_depth=3)} == {2, 3}
    few_turns = list(TextCraft.item_ids("train", max_steps=4))
    assert few_turns
    assert all(make_task(int(i.removeprefix("textcraft_")), 0).plan.turns() <= 4 for i in few_turns)


def test_an_item_is_the_same_task_in_every_process():
    code = (
        "from openmanus_rl.envs.textcraft import TextCraft; from openmanus_rl.envs.base import Task\n"
        "for n in (0, 77, 300, 551, 5000): print(TextCraft().reset(Task('textcraft', f'textcraft_{n}')).text)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1234")
    }
    here = "\n".join(TextCraft().reset(Task("textcraft", f"textcraft_{n}")).text for n in (0, 77, 300, 551, 5000))
    assert outputs == {here + "\n"}


def test_a_later_number_is_another_variant_of_a_goal():
    world = TextCraft()
    first, second = (world.reset(Task("textcraft", f"textcraft_{n}")).text for n in (77, 77 + 551))
    assert first != second
    assert first.split("\n")[-1] == second.split("\n")[-1]


@pytest.mark.parametrize("item_id", ["textcraft", "textcraft_-1", "textcraft_1.0", "chest"])
def test_a_wrong_item_id_is_refused_with_the_form_expected(item_id):
    with pytest.raises(UserError, match="textcraft_<n>"):
        TextCraft().reset(Task("textcraft", item_id))


@pytest.mark.parametrize(
    ("option", "value"),
    [("min_depth", 0), ("max_depth", 0), ("distractors", -1), ("max_steps", 0), ("variants", 0), ("names", "long")],
)
def test_a_wrong_option_is_refused_by_name(option, value):
    with pytest.raises(UserError, match=option):
        TextCraft(**{option: value})
    with pytest.raises(UserError, match=option):
        next(TextCraft.item_ids("train", **{option: value}))


def test_two_worlds_never_see_each_other():
    first, second = started("oak slab"), started("oak slab")
    first.step("get 1 oak log")
    assert said(second, "inventory") == "Inventory: nothing"
    assert said(first, "inventory") == "Inventory: [oak log] (1)"


def test_a_restored_snapshot_goes_on_exactly_as_before():
    chance = seeded("textcraft snapshot")
    for number in (5, 150, 400):
        world = TextCraft()
        world.reset(Task("textcraft", f"textcraft_{number}"))
        for _ in range(3):
            world.step(f"get 1 {sorted(recipe_table().found)[int(chance.random() * 100)]}")
        saved = world.snapshot()
        other = TextCraft()
        other.restore(json.loads(json.dumps(saved)))
        assert other.state_key() == world.state_key()
        done = False
        while not done:
            action = world.random_action(chance.random())
            result = world.step(action)
            assert other.step(action) == result
            done = result.done
        world.restore(saved)
        assert world.snapshot() == saved


def test_the_state_key_is_the_goal_and_what_is_carried():
    first, second = started("oak slab"), started("oak slab")
    for action in ("get 1 oak log", "get 1 diamond"):
        first.step(action)
    for action in ("get 1 diamond", "inventory", "get 1 oak log"):
        second.step(action)
    assert first.state_key() == second.state_key()
    second.step(OAK_PLANKS)
    assert first.state_key() != second.state_key()


def test_the_expert_crafts_every_goal():
    for split in SPLITS:
        expert = baseline_success("textcraft", "expert", split)
        assert expert.successes == expert.episodes


def test_the_expert_still_arrives_after_a_random_beginning():
    chance = seeded("textcraft detours")
    world = TextCraft(max_steps=200)
    for number in range(0, 551, 3):
        world.reset(Task("textcraft", f"textcraft_{number}"))
        done = False
        for _ in range(20):
            if not done:
                done = world.step(world.random_action(chance.random())).done
        while not done:
            result = world.step(world.expert_action())
            done = result.done
            assert not done or result.success


def test_the_expert_thinks_of_the_goals_command_and_of_what_must_be_crafted_first():
    world = started("crafting table", max_depth=2)
    table, _, planks = world.expert_thought().partition(" but first ")
    assert table == "craft 1 crafting table using 4 oak planks"
    world.step(world.expert_action())
    assert world.expert_thought() == f"{table} but first {planks}"
    assert world.expert_action() == planks
    world.step(planks)
    assert world.expert_thought() == world.expert_action() == table


def test_chance_alone_crafts_shallow_goals_and_few_deep_ones():
    shallow = baseline_success("textcraft", "random", "train", 100, options={"max_depth": 1})
    deep = baseline_success("textcraft", "random", "train", 100, options={"min_depth": 3})
    assert shallow.rate > 0.7
    assert deep.rate < 0.3


def shaped(result, pattern, **key):
    return {"type": "minecraft:crafting_shaped", "pattern": pattern, "key": key, "result": result}


RECIPE_FILES = {
    "oak_planks": {
        "type": "minecraft:crafting_shapeless",
        "group": "planks",
        "ingredients": [{"tag": "minecraft:oak_logs"}],
        "result": {"item": "minecraft:oak_planks", "count": 4},
    },
    "birch_planks": {
        "type": "minecraft:crafting_shapeless",
        "group": "planks",
        "ingredients": [{"tag": "minecraft:birch_logs"}],
        "result": {"item": "minecraft:birch_planks", "count": 4},
    },
    "stick": shaped({"item": "minecraft:stick", "count": 4}, ["#", "#"], **{"#": {"tag": "minecraft:planks"}}),
    "oak_fence": shaped(
        {"item": "minecraft:oak_fence", "count": 3},
        ["W#W", "W#W"],
        W={"item": "minecraft:oak_planks"},
        **{"#": [{"item": "minecraft:stick"}, {"item": "minecraft:bamboo"}]},
    ),
    "iron_ingot_from_nuggets": shaped("minecraft:iron_ingot", ["###"] * 3, **{"#": {"item": "minecraft:iron_nugget"}}),
    "iron_nugget": {
        "type": "crafting_shapeless",
        "ingredients": ["minecraft:iron_ingot"],
        "result": {"id": "minecraft:iron_nugget", "count": 9},
    },
    "coal": shaped({"item": "minecraft:coal", "count": 9}, ["#"], **{"#": {"item": "minecraft:coal_block"}}),
    "glass": {"type": "minecraft:smelting", "ingredient": {"item": "minecraft:sand"}, "result": "minecraft:glass"},
    "music_disc_5": shaped("minecraft:music_disc_5", ["#"], **{"#": {"item": "minecraft:disc_fragment_5"}}),
}


@pytest.fixture
def recipes_dir(tmp_path):
    (tmp_path / "recipes").mkdir()
    for name, recipe in RECIPE_FILES.items():
        (tmp_path / "recipes" / f"{name}.json").write_text(json.dumps(recipe))
    return str(tmp_path)


def test_recipes_are_read_from_a_directory_of_minecrafts_files(recipes_dir):
    table = TextCraft(recipes_dir=recipes_dir).table
    assert [recipe.command for recipe in table.recipes] == [
        "craft 4 birch planks using 1 birch logs",
        "craft 1 iron ingot using 9 iron nugget",
        "craft 3 oak fence using 4 oak planks, 2 stick",
        "craft 4 oak planks using 1 oak logs",
        "craft 4 stick using 2 planks",
    ]
    assert table.kinds == {"planks": ("birch planks", "oak planks")}
    assert table.found == {"birch logs", "oak logs", "iron nugget"}
    assert table.depth("oak fence") == 3


def test_any_item_of_a_kind_will_do_and_the_kind_itself_will_not(recipes_dir):
    world = TextCraft(recipes_dir=recipes_dir, distractors=8)
    number = world.table.goals.index("stick")
    first = world.reset(Task("textcraft", f"textcraft_{number}")).text
    assert "craft 4 stick using 2 planks" in first
    for action in ("get 1 birch logs", "craft 4 birch planks using 1 birch logs"):
        world.step(action)
    assert (
        world.step("craft 4 stick using 2 planks").observation.text
        == "Could not craft stick: that command is not listed"
    )
    assert world.step("get 2 planks").observation.text == "Could not find planks"
    assert world.step("craft 4 stick using 2 birch planks").success


def test_the_expert_and_chance_follow_kinds(recipes_dir):
    world = TextCraft(recipes_dir=recipes_dir)
    listed = [item_id for split in SPLITS for item_id in TextCraft.item_ids(split, recipes_dir=recipes_dir)]
    assert len(listed) == 5
    for item_id in listed:
        assert play(world, Task("textcraft", item_id), lambda world: world.expert_action()).success
        chance = seeded(item_id)
        play(world, Task("textcraft", item_id), lambda world, chance=chance: world.random_action(chance.random()))


def test_a_directory_without_recipes_or_with_a_broken_one_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="no recipe files"):
        TextCraft(recipes_dir=str(tmp_path))
    (tmp_path / "odd.json").write_text('{"type": "minecraft:crafting_shaped", "pattern": ["#"]}')
    with pytest.raises(UserError, match=r"odd\.json is not a recipe"):
        TextCraft(recipes_dir=str(tmp_path))
