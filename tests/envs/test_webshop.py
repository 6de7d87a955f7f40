"""WebShop: its catalogue, its pages, its reward and its routes."""

import json
from dataclasses import replace
from itertools import combinations

import pytest
from live_service import call, live_service

from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.webshop import WebShop
from openmanus_rl.envs.webshop.catalogue import Product, Wish, make_catalogue
from openmanus_rl.envs.webshop.reward import Goal, fits_option, kind_score, score, similarity
from openmanus_rl.envs.webshop.wares import wares
from openmanus_rl.errors import UserError

SMALL = {"num_products": 300}


def started(number: int = 0, **options: object) -> WebShop:
    shop = WebShop(**{**SMALL, **options})
    shop.reset(Task("webshop", f"webshop_{number}"))
    return shop


def product(**changes: object) -> Product:
    plain = Product(
        asin="B000000001",
        title="Zenlo Polo Shirt, Slim Fit, for Travel",
        query="men's shirts",
        path="Clothing › Men › Shirts",
        price=25.0,
        price_tag="$25.00",
        attributes=("slim fit", "machine washable"),
        options={"color": ("navy", "red"), "size": ("large", "x-large")},
        features=("Made to be machine washable",),
        description="A shirt.",
        reviews=(),
        rating="4.0",
        wishes=(),
    )
    return replace(plain, **changes)


WISH = Wish("Find me slim fit, machine washable shirts", ("slim fit", "machine washable"), ("navy", "large"))
GOAL = Goal(product(), WISH, 30.0)


@pytest.mark.parametrize(
    ("bought", "chosen", "reward"),
    [
        (product(), {"color": "navy", "size": "large"}, 1.0),
        (product(), {"color": "navy", "size": "x-large"}, 4 / 5),
        (product(), {"color": "red", "size": "x-large"}, 3 / 5),
        (product(), {}, 3 / 5),
        (product(price=30.0), {"color": "navy", "size": "large"}, 1.0),
        (product(price=30.01), {"color": "navy", "size": "large"}, 4 / 5),
        (product(attributes=("slim fit",), features=()), {"color": "navy", "size": "large"}, 4 / 5),
        (product(attributes=("slim fit",)), {"color": "navy", "size": "large"}, 1.0),  # its features tell it
        # another kind: no search, category or word of the title in common, so it is worth nothing
        (product(title="Oak Table", query="tables", path="Home › Tables"), {"color": "navy", "size": "large"}, 0.0),
        # one of four words of the title in common, more than a fifth: still the kind asked for
        (product(title="Silk Shirt", query="silk", path="Other"), {"color": "navy", "size": "large"}, 1.0),
    ],
)
def test_the_reward_is_webshops_formula(bought, chosen, reward):
    assert score(GOAL, bought, chosen).reward == pytest.approx(reward)


def test_a_title_with_little_in_common_halves_or_tenths_the_reward():
    wanted = product(title="one two three four five six", attributes=())
    other = {"query": "else", "path": "Else", "attributes": ()}
    assert kind_score(product(title="one zz", **other), wanted) == 0.5
    long = product(title="a1 " + " ".join(f"word{'x' * n}" for n in range(20)) + " common", attributes=())
    assert kind_score(product(title="common zz", **other), long) == 0.1
    assert kind_score(product(title="common zz", query="men's shirts", path="Else", attributes=()), wanted) == 0.0


def test_without_a_bound_every_price_will_do():
    assert score(replace(GOAL, highest_price=None), product(price=9000), {"color": "navy", "size": "large"}).reward == 1


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("machine wash", "wash machine", 1.0),
        ("slim fit", "slim fit jeans", 1.0),
        ("slim fit", "loose fit", 10 / 17),  # `fit slim` and `fit loose` have five letters in order in common
        ("abc", "xyz", 0.0),
        ("", "abc", 0.0),
    ],
)
def test_similarity_is_the_token_set_ratio(one, other, alike):
    assert similarity(one, other) == pytest.approx(alike)
    assert similarity(one, other) == similarity(other, one)


def test_no_value_of_an_option_passes_for_another():
    for department in wares().departments:
        for name, values in department.options.items():
            mixed_up = [pair for pair in combinations(values, 2) if fits_option(name, *pair)]
            assert not mixed_up


def test_the_catalogue_has_ten_thousand_products_and_goals_that_their_products_meet():
    shop = WebShop()._shop
    assert len(shop.products) == len(shop.goals) == 10_000
    assert len({p.query for p in shop.products.values()}) >= 50
    for goal in shop.goals[::97]:
        chosen = dict(zip(goal.product.options, goal.wish.options, strict=True))
        assert score(goal, goal.product, chosen).reward == 1.0
        told = " ".join([goal.product.title, *goal.product.features, goal.product.description]).lower()
        assert all(attribute in told for attribute in goal.wish.attributes)
        assert goal.product.price < goal.highest_price


def test_a_smaller_catalogue_is_the_beginning_of_a_larger():
    assert make_catalogue(20, 0) == make_catalogue(50, 0)[:20]
    assert make_catalogue(20, 0) != make_catalogue(20, 1)


def test_splits_share_no_instruction_and_leave_none_out():
    shop = WebShop(**SMALL)._shop
    numbers = {split: [int(i.removeprefix("webshop_")) for i in WebShop.item_ids(split, **SMALL)] for split in SPLITS}
    asked = {split: {shop.goals[n].instruction for n in numbers[split]} for split in SPLITS}
    assert not any(asked[one] & asked[other] for one, other in combinations(SPLITS, 2))
    assert set().union(*asked.values()) == {goal.instruction for goal in shop.goals}
    assert sum(map(len, asked.values())) == sum(map(len, numbers.values()))


def test_a_visit_through_every_page():
    shop = started()
    assert shop.available_actions() == {"has_search_bar": True, "clickables": ["search"]}
    results = shop.step("search[shirt dress boots sandals]").observation.text
    assert results.startswith("Instruction: [SEP] Find me ")
    assert "[SEP] Back to Search [SEP] Page 1 (Total results: " in results
    first = shop.available_actions()["clickables"]
    assert first[:2] == ["back to search", "next >"]
    assert len(first) == 12
    assert "Page 2 (" in shop.step("click[Next >]").observation.text
    second = shop.available_actions()["clickables"]
    assert second[1] == "< prev"
    assert not set(first[2:]) & set(second[3:])
    assert shop.step("click[< Prev]").observation.text == results
    item = shop.step(f"click[{first[2]}]").observation.text
    assert item.endswith("[SEP] Description [SEP] Features [SEP] Reviews [SEP] Buy Now")
    for detail in ("Description", "Features", "Reviews"):
        seen = shop.step(f"click[{detail}]").observation.text
        assert "Buy Now" not in seen
        assert shop.step("click[< Prev]").observation.text == item
    assert shop.step("click[< Prev]").observation.text == results
    assert shop.step("click[Back to Search]").observation.text.endswith("[SEP] Search")


def test_options_are_chosen_until_another_of_the_same_name_is():
    shop = started()
    shop.step("search[polo shirt]")
    asin = shop.available_actions()["clickables"][2]
    shop.step(f"click[{asin}]")
    name, values = next(iter(shop._product.options.items()))
    assert f"You have clicked {values[0]}." in shop.step(f"click[{values[0]}]").observation.text
    again = shop.step(f"click[{values[1]}]").observation.text
    assert f"You have clicked {values[1]}." in again
    assert f"You have clicked {values[0]}." not in again
    assert shop._visit.chosen == {name: values[1]}


def test_buying_ends_the_episode_and_pays():
    shop = started()
    shop.step("search[shirt]")
    shop.step(f"click[{shop.available_actions()['clickables'][2]}]")
    result = shop.step("click[Buy Now]")
    assert result.terminated
    assert not result.success
    assert 0 <= result.reward < 1
    with pytest.raises(EpisodeOver):
        shop.step("search[x]")


@pytest.mark.parametrize(
    "action", ["click[Buy Now]", "buy", "", "search[]", "click[B0]", "click[search\n]", "click[" * 99]
)
def test_what_cannot_be_done_leaves_the_page_and_says_why(action):
    shop = started()
    before = shop.render()
    result = shop.step(action)
    assert set(result.info) == {"missed" if WebShop.grammar.parse(action) else "invalid"}
    assert (shop.render(), result.reward, result.done) == (before, 0.0, False)


def test_a_search_without_hits_can_be_left():
    shop = started()
    assert "Total results: 0" in shop.step("search[qqqq]").observation.text
    assert shop.available_actions()["clickables"] == ["back to search"]


def test_the_last_turn_cuts_the_episode():
    shop = started(max_steps=2)
    assert not shop.step("search[shirt]").done
    assert shop.step("search[shirt]").truncated


def test_what_is_shown_is_what_is_parsed():
    for form in WebShop.grammar.forms:
        assert form.shown in started().instructions()
        assert WebShop.grammar.parse(form.shown)


def test_the_expert_buys_what_was_asked_for():
    assert baseline_success("webshop", "expert", "test", 64).rate == 1.0


def test_the_expert_finds_its_way_back_from_anywhere():
    shop = started(3)
    for action in ("search[sparkling water]", "click[next >]"):
        shop.step(action)
    shop.step(f"click[{shop.available_actions()['clickables'][4]}]")
    shop.step("click[Features]")
    result = shop.step(shop.expert_action())
    while not result.done:
        result = shop.step(shop.expert_action())
    assert result.success


def test_a_restored_snapshot_goes_on_exactly_as_before():
    shop = started(5)
    for _ in range(3):
        shop.step(shop.expert_action())
    kept, key = json.loads(json.dumps(shop.snapshot())), shop.state_key()
    seen = shop.step(shop.expert_action())
    other = WebShop(**SMALL)
    other.restore(kept)
    assert other.state_key() == key
    assert other.step(other.expert_action()) == seen


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_products": 0}, "num_products"),
        ({"max_steps": 0}, "max_steps"),
        ({"human_instructions": True}, "data_dir"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, named):
    with pytest.raises(UserError, match=named):
        WebShop(**options)


def test_a_number_beyond_the_goals_is_refused_with_the_last_one():
    with pytest.raises(UserError, match="webshop_299"):
        started(300)


@pytest.fixture
def original_files(tmp_path):
    """Three products in the format of WebShop's files."""
    listed = [
        {
            "asin": "B00AAAAAA1",
            "name": "Soft Cotton Tee",
            "query": "Men's Tees ",
            "product_category": "Clothing › Men › Tees",
            "pricing": "$12.50",
            "full_description": "A tee.",
            "small_description": ["Machine wash", "Cotton"],
            "customization_options": {"Color": [{"value": "Navy/White"}, {"value": "Red"}], "Size": None},
            "images": ["x"],
        },
        {
            "asin": "B00AAAAAA2",
            "name": "Oak Shelf",
            "query": "shelves",
            "product_category": "Home › Shelves",
            "pricing": "$1,020.00$1,100.00",
            "full_description": None,
            "small_description": "Solid wood",
            "customization_options": "",
        },
        {
            "asin": "B00AAAAAA1",
            "name": "The same again",
            "query": "x",
            "product_category": "x",
            "pricing": "",
            "customization_options": {},
        },
    ]
    known = {
        "B00AAAAAA1": {
            "attributes": ["machine wash", "soft cotton"],
            "instruction": "Find me machine wash men's tees",
            "instruction_attributes": ["machine wash"],
        },
        "B00AAAAAA2": {"attributes": ["solid wood"]},
    }
    people = {
        "B00AAAAAA2": [
            {
                "instruction": "i want an oak shelf.",
                "instruction_attributes": ["solid wood"],
                "instruction_options": [],
            },
            {"instruction": "a shelf", "instruction_attributes": [], "instruction_options": []},
        ]
    }
    for name, content in (("items_shuffle", listed), ("items_ins_v2", known), ("items_human_ins", people)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return str(tmp_path)


def test_the_original_product_files_can_be_shopped_in(original_files):
    shop = WebShop(data_dir=original_files)
    items = [item for split in SPLITS for item in WebShop.item_ids(split, data_dir=original_files)]
    assert sorted(items) == ["webshop_0", "webshop_1"]  # one for each value of the only option
    for item in items:
        assert "machine wash men's tees with color: " in shop.reset(Task("webshop", item)).text
        while not (result := shop.step(shop.expert_action())).done:
            pass
        assert result.success
    assert shop._shop.products["B00AAAAAA1"].options == {"color": ("navy | white", "red")}


def test_people_s_own_instructions_can_be_taken(original_files):
    shop = WebShop(data_dir=original_files, human_instructions=True)
    seen = shop.reset(Task("webshop", "webshop_0")).text
    assert seen == "WebShop [SEP] Instruction: [SEP] i want an oak shelf [SEP] Search"  # too dear for a bound
    shop.step("search[shelf]")
    assert "$1020.0 to $1100.0" in shop.render()


def test_a_directory_without_the_files_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"items_ins_v2\.json"):
        WebShop(data_dir=str(tmp_path))


@pytest.fixture(scope="module")
def served():
    with live_service(environment_class("webshop"), SMALL) as url:
        yield url


def test_an_agentgym_client_shops_here(served):
    """The calls of AgentGym's WebShop client, and the shapes it reads."""
    index = call("POST", f"{served}/create").content
    assert isinstance(index, int)
    seen = call("POST", f"{served}/reset", {"env_idx": index, "session_id": 3}).content
    assert seen == [call("GET", f"{served}/observation?env_idx={index}").content, None]
    asked = call("GET", f"{served}/instruction_text?env_idx={index}").content
    assert asked.startswith("Instruction: Find me")
    actions = call("GET", f"{served}/available_actions?env_idx={index}").content
    assert actions == {"has_search_bar": True, "clickables": ["search"]}
    step = call("POST", f"{served}/step", {"env_idx": index, "action": "search[shirt]"}).content
    assert step == {"state": step["state"], "reward": 0.0, "done": False, "info": None}
    assert set(call("GET", f"{served}/state?env_idx={index}").content) == {"url", "html", "instruction_text"}
    assert call("POST", f"{served}/close", {"env_idx": index}).content == {"closed": True}
    assert call("POST", f"{served}/close", {"env_idx": index}).content == {"closed": False}


def test_a_mistake_of_the_caller_is_a_status_with_a_detail(served):
    unknown = call("POST", f"{served}/step", {"env_idx": 12345, "action": "x"})
    assert (unknown.status, set(unknown.content)) == (404, {"detail"})
    assert call("POST", f"{served}/step", {"env_idx": "x", "action": "x"}).status == 422
    assert call("GET", f"{served}/observation").status == 422
    index = call("POST", f"{served}/create", {"id": 1}).content
    assert call("POST", f"{served}/reset", {"env_idx": index, "session_id": 10**9}).status == 422
    assert call("POST", f"{served}/reset", {"env_idx": index, "session_id": None}).status == 200
