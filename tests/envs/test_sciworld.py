"""ScienceWorld without Java: ids, splits and numbers; the world and its routes over a stand-in for the simulator."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from live_service import call, live_service
from stand_in_simulator import GOLD, StandInSimulator
from test_agentgym_routes import TRANSCRIPTS, shape

from openmanus_rl.envs.base import SPLITS, EpisodeOver, NoRoom, Task
from openmanus_rl.envs.registry import make_environment
from openmanus_rl.envs.sciworld import SciWorld, pool, simulator, world
from openmanus_rl.envs.sciworld.pool import GoldPaths, SimulatorPool
from openmanus_rl.envs.sciworld.tasks import VARIATIONS, read_item_id, task_of_number, variations
from openmanus_rl.errors import UserError


@pytest.fixture
def simulators(monkeypatch):
    """A fresh pool whose simulators are stand-ins."""
    fresh = SimulatorPool()
    monkeypatch.setattr(StandInSimulator, "alive", set())
    monkeypatch.setattr(pool, "Simulator", StandInSimulator)
    monkeypatch.setattr(world, "POOL", fresh)
    monkeypatch.setattr(world, "GOLD", GoldPaths())
    monkeypatch.setattr(world, "check_requirements", lambda: None)
    return fresh


def begun(item_id: str = "boil-0", **options: object) -> SciWorld:
    science = SciWorld(**options)
    science.reset(Task("sciworld", item_id))
    return science


def test_there_are_thirty_task_types_with_7207_variations():
    assert (len(VARIATIONS), sum(VARIATIONS.values())) == (30, 7207)


def test_every_variation_is_in_one_split_and_each_split_begins_with_all_types():
    ids = {split: list(SciWorld.item_ids(split)) for split in SPLITS}
    assert [len(ids[split]) for split in SPLITS] == [3592, 1796, 1819]
    assert len({item_id for split in SPLITS for item_id in ids[split]}) == 7207
    for split in SPLITS:
        assert {read_item_id(item_id).name for item_id in ids[split][:30]} == set(VARIATIONS)


def test_the_variations_of_a_type_are_divided_as_the_simulator_divides_them():
    assert [variations("boil", split) for split in SPLITS] == [range(14), range(14, 21), range(21, 30)]
    assert [len(variations("identify-life-stages-2", split)) for split in SPLITS] == [4, 2, 4]


def test_some_task_types_can_be_chosen():
    ids = list(SciWorld.item_ids("train", tasks=["boil", "melt"], max_steps=5))
    assert ids[:3] == ["boil-0", "melt-0", "boil-1"]
    assert len(ids) == 28
    with pytest.raises(UserError, match="Did you mean boil"):
        list(SciWorld.item_ids("train", tasks=["boill"]))


@pytest.mark.parametrize("item_id", ["boil", "boil-30", "boil-01", "boil--1", "boil-x", "sciworld_0", "melt-0 ", "-0"])
def test_a_wrong_item_id_is_refused_with_the_form_expected(item_id):
    with pytest.raises(UserError, match="<task>-<variation>"):
        read_item_id(item_id)


@pytest.mark.parametrize(
    ("number", "item_id"),
    [
        (0, "boil-0"),
        (30, "melt-0"),
        (3000, "find-living-thing-64"),
        (4136, "chemistry-mix-0"),
        (4638, "identify-life-stages-2-9"),
    ],
)
def test_agentgyms_numbers_name_the_same_tasks_here(number, item_id):
    assert task_of_number(number).item_id == item_id


@pytest.mark.parametrize("number", [-1, 4639])
def test_numbers_that_agentgym_does_not_have_are_refused(number):
    with pytest.raises(UserError, match="4638"):
        task_of_number(number)


def test_what_is_shown_is_what_is_parsed(simulators):
    grammar = SciWorld.grammar
    assert grammar.describe() in SciWorld().instructions()
    assert all(grammar.parse(form.shown) for form in grammar.forms)
    for action in (
        "pour metal pot into sink",
        "use thermometer in inventory on steam",
        "connect battery anode to red wire",
    ):
        assert grammar.parse(action)
    for action in ("", "open", "pour pot", "fly to moon", "look"):
        assert grammar.parse(action) is None


def test_a_missing_package_or_java_is_an_error_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr(simulator.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="openmanus-rl env install sciworld"):
        SciWorld()
    monkeypatch.setattr(simulator.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(simulator, "java", lambda: None)
    with pytest.raises(UserError, match="apt-get install"):
        SciWorld()


def test_rewards_add_up_to_the_score_and_100_is_a_success(simulators):
    science = begun()
    results = [science.step(action) for action in ("open sesame", *GOLD)]
    assert [result.reward for result in results] == [0, 0, 40, 60]
    assert [result.terminated for result in results] == [False, False, False, True]
    assert (results[-1].success, science.score) == (True, 100)
    with pytest.raises(EpisodeOver):
        science.step("look around")


def test_focusing_on_the_wrong_thing_ends_the_episode_at_minus_100(simulators):
    science = begun()
    science.step("open door to kitchen")
    result = science.step("focus on air")
    assert (result.reward, result.terminated, result.success, science.score) == (-140, True, False, -100)


def test_the_episode_is_cut_after_max_steps(simulators):
    science = begun(max_steps=2)
    assert not science.step("look around").done
    result = science.step("look around")
    assert (result.truncated, result.terminated) == (True, False)


def test_only_what_neither_the_grammar_nor_the_simulator_knows_is_invalid(simulators):
    science = begun()
    assert "invalid" in science.step("fly to moon").info
    assert not science.step("look at nothing").info
    assert not science.step("open sesame").info


def test_the_expert_follows_the_gold_path_looks_do_not_matter_and_deeds_lose_it(simulators):
    science = begun()
    assert science.expert_action() == GOLD[0]
    for action in (GOLD[0], "inventory", GOLD[1], "nonsense"):
        science.step(action)
    assert science.expert_action() == GOLD[2]
    science.step("open sesame")
    assert science.expert_action() is None


def test_a_simulator_goes_back_when_the_episode_ends_and_serves_the_next(simulators):
    science = begun()
    first = simulators.pids
    for action in GOLD:
        science.step(action)
    other = begun("melt-1")
    assert simulators.pids == first
    other.close()
    other.close()
    science.close()
    assert simulators.pids == first


def test_worlds_that_play_at_once_have_simulators_of_their_own(simulators):
    worlds = [begun(f"boil-{n}") for n in range(3)]
    assert len(set(simulators.pids)) == 3
    worlds[0].step("open door to kitchen")
    assert [science.score for science in worlds] == [40, 0, 0]


def test_more_episodes_than_simulators_is_no_room_and_room_again_after_a_close(simulators):
    first = begun(simulators=1)
    second = SciWorld(simulators=1)
    with pytest.raises(NoRoom, match="simulators"):
        second.reset(Task("sciworld", "boil-1"))
    first.close()
    second.reset(Task("sciworld", "boil-1"))


def test_a_simulator_that_has_grown_or_aged_is_replaced_between_episodes(simulators):
    science = begun()
    (before,) = StandInSimulator.alive
    before.memory_bytes = (pool.MAX_MEGABYTES + 1) << 20
    science.reset(Task("sciworld", "boil-1"))
    (after,) = StandInSimulator.alive
    assert before is not after
    after.episodes = pool.MAX_EPISODES
    science.close()
    assert not StandInSimulator.alive


def test_a_simulator_that_crashes_is_not_used_again(simulators):
    science = begun()
    with pytest.raises(simulator.SimulatorFailed):
        science.step("crash")
    science.reset(Task("sciworld", "boil-0"))
    assert len(StandInSimulator.alive) == 1


def test_the_pool_lends_each_simulator_to_one_thread_at_a_time(simulators):
    def play(_: int) -> int:
        lent = simulators.borrow(limit=64)
        lent.load(read_item_id("boil-0"))
        score = lent.step("open door to kitchen").score
        simulators.give_back(lent)
        return score

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(play, range(400))) == {40}
    assert len(simulators.pids) <= 8


@pytest.fixture
def served(simulators):
    with live_service(SciWorld) as url:
        yield url


def test_the_agentgym_routes_answer_key_by_key(served):
    session = call("POST", f"{served}/create").content
    reset = call("POST", f"{served}/reset", {**session, "data_idx": 3000}).content
    assert set(reset) == {
        "task_name",
        "var_num",
        "task_description",
        "observation",
        "reward",
        "score",
        "deleted",
        "done",
    }
    assert (reset["task_name"], reset["var_num"]) == ("find-living-thing", 64)
    step = call("POST", f"{served}/step", {**session, "action": "open door to kitchen"}).content
    assert step == {"observation": "The door is now open.", "reward": 40.0, "score": 40, "done": False}
    hint = call("GET", f"{served}/action_hint?id={session['id']}").content
    assert set(hint) == {"possible_actions", "possible_objects"}
    assert set(call("GET", f"{served}/goals?id={session['id']}").content) == {"goals"}
    assert call("GET", f"{served}/detail?id={session['id']}").content["score"] == 40
    assert "find-living-thing-64" in call("GET", f"{served}/task_description?id={session['id']}").content
    assert "4638" in call("POST", f"{served}/reset", {**session, "data_idx": 4639}).content["error"]


def test_a_server_without_room_says_so_with_its_status(simulators):
    with live_service(SciWorld, {"simulators": 1}) as url:
        task = {"task": {"env": "sciworld", "item_id": "boil-0"}}
        assert call("POST", f"{url}/v1/sessions", task).status == 201
        full = call("POST", f"{url}/v1/sessions", task)
        assert (full.status, full.headers["Retry-After"]) == (503, "1")


def test_a_recorded_conversation_gets_answers_of_the_same_shape(served):
    """Only shapes are compared: the science is a stand-in's. The recorded server's 500s are not promised."""
    path = TRANSCRIPTS / "sciworld.jsonl"
    if not path.exists():
        pytest.skip(f"there are no recorded conversations at {TRANSCRIPTS}")
    ids = {}
    compared = 0
    for record in map(json.loads, path.read_text().splitlines()):
        route = record["url"].partition(":36003")[2].partition("?")[0]
        if record["status"] == 500:
            continue
        body = dict(record["request_json"]) if record["request_json"] else None
        if body:
            body["id"] = ids[body["id"]]
        query = f"?id={ids[int(record['url'].partition('=')[2])]}" if "?" in record["url"] else ""
        ours = call(record["method"], f"{served}{route}{query}", body)
        if route == "/create":
            ids[record["response"]["id"]] = ours.content["id"]
        assert ours.status == 200
        assert shape(ours.content) == shape(record["response"]), record
        compared += 1
    assert compared > 20


def test_listing_the_tasks_needs_neither_java_nor_the_package():
    assert list(islice(SciWorld.item_ids("test"), 2)) == ["boil-21", "melt-21"]
    assert SciWorld.requirements == ("scienceworld", "py4j")
    with pytest.raises(UserError):
        make_environment("sciworld", max_steps=0)
