"""ALFWorld: the household's rules and words, the generated tasks, and the expert."""

import json
import os
import subprocess
import sys
from itertools import islice

import pytest
from live_service import call, live_service
from stand_in_textworld import textworld_with

from openmanus_rl.envs.alfworld import AlfWorld
from openmanus_rl.envs.alfworld.game_files import game_ids, game_path, numbered_games, plain_names
from openmanus_rl.envs.alfworld.generate import TASK_TYPES, Game, Goal, make_game
from openmanus_rl.envs.alfworld.house import OPENABLE, THINGS, kind_of
from openmanus_rl.envs.alfworld.household import GRAMMARS, NOTHING, Household
from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task, split_of
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.items import seeded
from openmanus_rl.errors import UserError

KITCHEN = Game(
    room="kitchen",
    receptacles=("cabinet 1", "countertop 1", "fridge 1", "microwave 1", "sinkbasin 1"),
    places=(("mug 1", "cabinet 1"), ("apple 1", "countertop 1"), ("mug 2", "countertop 1")),
    goal=Goal("pick_clean_then_place_in_recep", "mug", "fridge", "put a clean mug in fridge"),
)


def test_a_household_is_told_in_alfworlds_words():
    house = Household(KITCHEN)
    assert house.begin() == (
        "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a countertop 1, a fridge 1, "
        "a microwave 1, and a sinkbasin 1.\nYour task is to: put a clean mug in fridge."
    )
    told = [
        ("go to cabinet 1", "The cabinet 1 is closed."),
        ("take mug 1 from cabinet 1", NOTHING),
        ("open cabinet 1", "You open the cabinet 1. The cabinet 1 is open. In it, you see a mug 1."),
        ("examine mug 1", "There's nothing special about mug 1."),
        ("take mug 1 from cabinet 1", "You pick up the mug 1 from the cabinet 1."),
        ("close cabinet 1", "You close the cabinet 1."),
        ("inventory", "You are carrying: a mug 1."),
        ("go to countertop 1", "On the countertop 1, you see a apple 1, and a mug 2."),
        ("take apple 1 from countertop 1", NOTHING),
        ("look", "You are facing the countertop 1. Next to it, you see nothing."),
        ("go to sinkbasin 1", "On the sinkbasin 1, you see nothing."),
        ("clean mug 1 with sinkbasin 1", "You clean the mug 1 using the sinkbasin 1."),
        ("examine mug 1", "This is a clean mug 1."),
        ("heat mug 1 with microwave 1", NOTHING),
        ("go to fridge 1", "The fridge 1 is closed."),
        ("put mug 1 in/on fridge 1", NOTHING),
        ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see nothing."),
    ]
    assert [(action, house.act(action)) for action, _ in told] == told
    assert not house.won()
    assert house.act("put mug 1 in/on fridge 1") == "You put the mug 1 in/on the fridge 1."
    assert house.won()
    assert house.act("inventory") == "You are not carrying anything."


def test_the_newer_wording_says_move_and_tells_of_arrivals_and_both_are_understood():
    house = Household(KITCHEN, "move")
    assert (
        house.act("go to countertop 1")
        == "You arrive at countertop 1. On the countertop 1, you see a apple 1, and a mug 2."
    )
    house.act("take mug 2 from countertop 1")
    assert "move mug 2 to countertop 1" in house.actions()
    assert house.act("put mug 2 in/on countertop 1") == "You move the mug 2 to the countertop 1."
    classic = Household(KITCHEN)
    classic.act("go to countertop 1")
    classic.act("take mug 2 from countertop 1")
    assert "put mug 2 in/on countertop 1" in classic.actions()
    assert classic.act("Move mug 2 to countertop 1") == "You put the mug 2 in/on the countertop 1."


def test_what_is_hot_is_not_cold():
    house = Household(KITCHEN)
    for action in (
        "go to countertop 1",
        "take apple 1 from countertop 1",
        "go to microwave 1",
        "heat apple 1 with microwave 1",
    ):
        house.act(action)
    assert house.act("examine apple 1") == "This is a hot apple 1."
    house.act("go to fridge 1")
    house.act("cool apple 1 with fridge 1")
    assert house.act("examine apple 1") == "This is a cold apple 1."


def test_a_thing_held_beside_a_lamp_that_is_on_is_looked_at_in_light():
    game = next(game for game in map(make_game, range(1, 60, 6)) if game.goal.in_light)
    house = Household(game)
    thing, place = next((thing, place) for thing, place in game.places if kind_of(thing) == game.goal.thing)
    lamp_place = dict(game.places)["desklamp 1"]
    steps = [f"go to {place}", f"open {place}", f"take {thing} from {place}", f"go to {lamp_place}"]
    for action in steps:
        house.act(action)
    assert f"take desklamp 1 from {lamp_place}" not in house.actions()
    assert not house.won()
    assert house.act("use desklamp 1") == "You turn on the desklamp 1."
    assert house.won()


def test_every_action_that_is_listed_does_something_and_no_other_of_its_kind_does():
    chance = seeded("alfworld actions")
    for number in range(24):
        house = Household(make_game(number))
        for _ in range(30):
            actions = house.actions()
            assert actions == sorted(set(actions))
            state = house.state()
            for action in actions:
                assert house.act(action) != NOTHING, action
                house.become(state)
            for name in ("mug 1", "apple 1", "book 1", house.game.receptacles[0], "sofa 9"):
                for action in (
                    f"take {name} from {house.at}",
                    f"open {name}",
                    f"close {name}",
                    f"use {name}",
                    f"go to {name}",
                ):
                    assert (house.act(action) not in (None, NOTHING)) == (action in actions), action
                    house.become(state)
            house.act(actions[int(chance.random() * len(actions))])


def test_generated_tasks_are_of_all_six_types_possible_and_not_yet_done():
    for number in range(600):
        game = make_game(number)
        goal, house = game.goal, Household(game)
        assert goal.task_type == TASK_TYPES[number % 6]
        assert goal.thing in goal.words
        assert not house.won()
        assert sum(kind_of(thing) == goal.thing for thing, _ in game.places) >= goal.count
        assert all(place in game.receptacles for _, place in game.places)
        assert goal.in_light or game.of_kind(goal.place)


def test_kinds_fit_together():
    for kind in THINGS.values():
        assert kind.places, kind
    assert {"fridge", "microwave", "cabinet", "drawer"} <= OPENABLE


def test_splits_share_no_game_and_hold_all_six_types():
    contents = {}
    for split in SPLITS:
        ids = list(islice(AlfWorld.item_ids(split), 60))
        games = [make_game(int(i.removeprefix("alfworld_"))) for i in ids]
        assert {game.goal.task_type for game in games} == set(TASK_TYPES)
        assert all(split_of(game.content) == split for game in games)
        contents[split] = {game.content for game in games}
        assert len(contents[split]) == 60
    assert not contents["train"] & contents["test"]


def test_only_the_task_types_asked_for_are_listed():
    ids = islice(AlfWorld.item_ids("train", task_types=["pick_two_obj_and_place"]), 20)
    assert {int(i.removeprefix("alfworld_")) % 6 for i in ids} == {5}


def test_an_item_is_the_same_game_in_every_process():
    code = (
        "from openmanus_rl.envs.alfworld.generate import make_game\n"
        "for n in (0, 1, 77, 12345): print(make_game(n).content)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "99")
    }
    assert outputs == {"".join(make_game(n).content + "\n" for n in (0, 1, 77, 12345))}


def test_game_0_is_for_ever_this_one():
    game = make_game(0)
    assert (game.room, game.goal.words) == ("bathroom", "put a soapbar in sinkbasin")


def test_the_expert_does_every_task():
    for split in SPLITS:
        expert = baseline_success("alfworld", "expert", split, 120)
        assert expert.successes == expert.episodes == 120


def test_the_expert_still_arrives_after_a_random_beginning():
    chance = seeded("alfworld detours")
    world = AlfWorld(max_steps=200)
    for number in range(240):
        world.reset(Task("alfworld", f"alfworld_{number}"))
        done = False
        for _ in range(25):
            if not done:
                done = world.step(world.random_action(chance.random())).done
        while not done:
            result = world.step(world.expert_action())
            done = result.done
            assert not done or result.success


def test_chance_alone_does_almost_nothing():
    assert baseline_success("alfworld", "random", "train", 200).rate < 0.1


def test_winning_pays_one_and_ends_the_episode():
    world = AlfWorld()
    world.reset(Task("alfworld", "alfworld_2"))
    rewards = []
    while True:
        result = world.step(world.expert_action())
        rewards.append(result.reward)
        if result.done:
            break
    assert (rewards[-1], sum(rewards), result.success, result.terminated) == (1.0, 1.0, True, True)
    with pytest.raises(EpisodeOver):
        world.step("look")


def test_the_episode_is_cut_after_max_steps():
    world = AlfWorld(max_steps=2)
    world.reset(Task("alfworld", "alfworld_2"))
    assert not world.step("look").done
    assert world.step("look").truncated


@pytest.mark.parametrize(
    "action", ["", "jump", "take mug", "go to the fridge 1", "put mug 1", "heat 💧 with microwave 1"]
)
def test_what_is_no_action_changes_nothing_and_says_so(action):
    world = AlfWorld()
    world.reset(Task("alfworld", "alfworld_2"))
    before = world.state_key()
    result = world.step(action)
    assert (result.observation.text, result.reward, world.state_key()) == (NOTHING, 0.0, before)
    assert result.info["invalid"]


@pytest.mark.parametrize("wording", GRAMMARS)
def test_what_is_shown_is_what_is_parsed(wording):
    world = AlfWorld(wording=wording)
    grammar = GRAMMARS[wording]
    assert grammar.describe() in world.instructions()
    assert all(grammar.parse(form.shown) for form in grammar.forms)
    for number in range(12):
        world.reset(Task("alfworld", f"alfworld_{number}"))
        done = False
        while not done:
            assert all(grammar.parse(action) for action in world.available_actions())
            done = world.step(world.expert_action()).done


def test_the_possible_actions_are_shown_where_that_is_asked_for():
    world = AlfWorld(list_actions=True)
    seen = world.reset(Task("alfworld", "alfworld_2")).text
    assert seen.endswith(f"\nAVAILABLE ACTIONS: {','.join(world.available_actions())}")
    assert "AVAILABLE" not in AlfWorld().reset(Task("alfworld", "alfworld_2")).text


def test_a_restored_snapshot_goes_on_exactly_as_before():
    chance = seeded("alfworld snapshot")
    for number in (2, 9, 40):
        world, other = AlfWorld(), AlfWorld()
        world.reset(Task("alfworld", f"alfworld_{number}"))
        for _ in range(10):
            world.step(world.random_action(chance.random()))
        saved = world.snapshot()
        other.restore(json.loads(json.dumps(saved)))
        assert (other.state_key(), other.render()) == (world.state_key(), world.render())
        done = False
        while not done:
            action = world.expert_action()
            result = world.step(action)
            assert other.step(action) == result
            done = result.done
        world.restore(saved)
        assert world.snapshot() == saved


@pytest.mark.parametrize("item_id", ["alfworld", "alfworld_-1", "alfworld_01", "train/x/y"])
def test_a_wrong_item_id_is_refused_with_the_form_expected(item_id):
    with pytest.raises(UserError, match="alfworld_<n>"):
        AlfWorld().reset(Task("alfworld", item_id))


@pytest.mark.parametrize(
    ("option", "value"), [("task_types", ["nap"]), ("max_steps", 0), ("wording", "shout"), ("mappings", ["a.json"])]
)
def test_a_wrong_option_is_refused_by_name(option, value):
    with pytest.raises(UserError, match=option):
        AlfWorld(**{option: value})


@pytest.fixture(scope="module")
def served():
    with live_service(AlfWorld) as url:
        yield url


def test_the_agentgym_routes_answer_key_by_key(served):
    session = call("POST", f"{served}/create").content
    assert set(session) == {"id"}
    reset = call("POST", f"{served}/reset", {**session, "game": 2, "world_type": "Text"}).content
    assert set(reset) == {"id", "observation", "available_actions", "task_type"}
    assert reset["task_type"].startswith("pick_clean_then_place_in_recep-")
    assert call("GET", f"{served}/observation?id={session['id']}").content == reset["observation"]
    assert call("GET", f"{served}/available_actions?id={session['id']}").content == reset["available_actions"]
    step = call("POST", f"{served}/step", {**session, "action": reset["available_actions"][0]}).content
    assert set(step) == {"observation", "reward", "available_actions", "done"}
    assert (step["reward"], step["done"]) == (0.0, False)
    assert step["available_actions"] != reset["available_actions"]
    assert call("POST", f"{served}/close", session).content is True


def test_an_episode_on_those_routes_ends_and_then_answers_with_errors(served):
    session = call("POST", f"{served}/create").content
    call("POST", f"{served}/reset", {**session, "game": 2})
    world = AlfWorld()
    world.reset(Task("alfworld", "alfworld_2"))
    done = False
    while not done:
        action = world.expert_action()
        world.step(action)
        answer = call("POST", f"{served}/step", {**session, "action": action}).content
        done = answer["done"]
    assert answer["reward"] == 1.0
    for route in ("observation", "available_actions"):
        assert "over" in call("GET", f"{served}/{route}?id={session['id']}").content["error"]


def test_only_text_worlds_are_served(served):
    session = call("POST", f"{served}/create").content
    assert call("POST", f"{served}/reset", {**session, "game": 2, "world_type": "Embody"}).status == 422


@pytest.fixture
def games_dir(tmp_path):
    """A directory as ALFWorld publishes it, with empty games: enough to list, name and number them."""
    for folder, task, trial, solvable in (
        ("train", "pick_and_place_simple-Mug-None-Desk-308", "trial_T2", True),
        ("train", "pick_and_place_simple-Mug-None-Desk-308", "trial_T1", True),
        ("train", "pick_heat_then_place_in_recep-Egg-None-Fridge-1", "trial_T3", False),
        ("train", "pick_heat_then_place_in_recep-Egg-None-Fridge-1", "trial_T6", None),
        ("valid_seen", "look_at_obj_in_light-Pen-None-DeskLamp-301", "trial_T4", True),
        ("valid_train", "pick_two_obj_and_place-Pen-None-Desk-302", "trial_T5", True),
    ):
        place = tmp_path / folder / task / trial
        place.mkdir(parents=True)
        parts = {"pddl_domain": "", "grammar": "", "pddl_problem": ""}
        (place / "game.tw-pddl").write_text(json.dumps(parts if solvable is None else {**parts, "solvable": solvable}))
    return tmp_path


def test_published_games_are_named_by_their_paths_in_alfworlds_own_splits(games_dir):
    train = list(AlfWorld.item_ids("train", games_dir=str(games_dir)))
    assert train == [f"train/pick_and_place_simple-Mug-None-Desk-308/trial_T{n}" for n in (1, 2)]
    assert next(game_ids(games_dir, "validation")).startswith("valid_seen/look_at_obj_in_light")
    with pytest.raises(UserError, match="valid_unseen"):
        list(game_ids(games_dir, "test"))
    assert list(game_ids(games_dir, "train", ["pick_two_obj_and_place"])) == []


@pytest.mark.parametrize(
    ("content", "told"),
    [('{"solvable": tr', "is not JSON"), ("[]", "no JSON object"), ('{"solvable": true}', "no pddl_domain")],
)
def test_a_broken_game_is_told_by_its_file(games_dir, monkeypatch, content, told):
    for name, module in textworld_with("put mug 1 in/on shelf 1", []).items():
        monkeypatch.setitem(sys.modules, name, module)
    item_id = "train/pick_and_place_simple-Mug-None-Desk-308/trial_T1"
    (games_dir / item_id / "game.tw-pddl").write_text(content)
    with pytest.raises(UserError, match=rf"trial_T1.game\.tw-pddl .*{told}"):
        AlfWorld(games_dir=str(games_dir)).reset(Task("alfworld", item_id))


@pytest.mark.parametrize("item_id", ["train/nothing/here", "../secret", "alfworld_2"])
def test_an_item_outside_the_directory_is_refused(games_dir, item_id):
    with pytest.raises(UserError, match="no game"):
        game_path(games_dir, item_id)


def test_agentgyms_mapping_files_number_the_published_games(games_dir, tmp_path):
    records = [{"task_type": "pick_and_place_simple-Mug-None-Desk-308", "task_id": "trial_T1"}]
    others = [{"task_type": "pick_two_obj_and_place-Pen-None-Desk-302", "task_id": "trial_T5"}]
    (tmp_path / "train.json").write_text(json.dumps(records))
    (tmp_path / "test.json").write_text(json.dumps(others))
    files = [tmp_path / "train.json", tmp_path / "test.json"]
    assert numbered_games(files)[1] == "valid_train/pick_two_obj_and_place-Pen-None-Desk-302/trial_T5"
    world = AlfWorld(games_dir=str(games_dir), mappings=[str(file) for file in files])
    assert world.item_of_number(0) == "train/pick_and_place_simple-Mug-None-Desk-308/trial_T1"
    with pytest.raises(UserError, match="number 2"):
        world.item_of_number(2)


def test_things_of_published_games_get_alfworlds_names():
    names = plain_names(
        ["cabinet_bar__minus_01", "cabinet_bar__plus_02", "sink_bar__1_bar_sinkbasin", "sinkbasin_bar_1", "agent1"]
    )
    assert names == {
        "cabinet_bar__minus_01": "cabinet 2",
        "cabinet_bar__plus_02": "cabinet 1",
        "sink_bar__1_bar_sinkbasin": "sinkbasin 2",
        "sinkbasin_bar_1": "sinkbasin 1",
        "agent1": "agent1",
    }


@pytest.mark.parametrize("put", ["put mug 1 in/on shelf 1", "move mug 1 to shelf 1"])
@pytest.mark.parametrize("said", ["put mug 1 in/on shelf 1", "Move mug 1 to shelf 1"])
def test_a_published_game_is_played_in_either_wording_whichever_its_file_has(games_dir, monkeypatch, put, said):
    engines = []
    for name, module in textworld_with(put, engines).items():
        monkeypatch.setitem(sys.modules, name, module)
    world = AlfWorld(games_dir=str(games_dir))
    seen = world.reset(Task("alfworld", "train/pick_and_place_simple-Mug-None-Desk-308/trial_T1")).text
    assert seen == "You see desk 1, mug 1, shelf 1.\nYour task is to: put a mug in shelf."
    assert world.task_type == "pick_and_place_simple-Mug-None-Desk-308/trial_T1"
    assert world.expert_action() == "go to desk 1"
    assert world.step("go to desk 1").observation.text == "On the desk 1, you see a mug 1."
    assert "invalid" in world.step("dance").info
    assert world.step("open shelf 1").observation.text == NOTHING
    world.step("take mug 1 from desk 1")
    assert put in world.available_actions()
    result = world.step(said)
    assert (result.reward, result.success, result.terminated) == (1.0, True, True)
    assert world.state_key() is None
    world.reset(Task("alfworld", "train/pick_and_place_simple-Mug-None-Desk-308/trial_T2"))
    assert not world.step("look").done
    (engine,) = engines
    assert [path.split("/")[-2] for path in engine.loaded] == ["trial_T1", "trial_T2"]
    world.close()
    world.close()


def test_without_textworld_a_published_game_says_how_to_get_it(games_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "textworld", None)
    world = AlfWorld(games_dir=str(games_dir))
    with pytest.raises(UserError, match="env install alfworld"):
        world.reset(Task("alfworld", "train/pick_and_place_simple-Mug-None-Desk-308/trial_T1"))
