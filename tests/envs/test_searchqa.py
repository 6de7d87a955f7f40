"""SearchQA: its encyclopedia, its questions, its search, and its routes."""

import json
from collections import Counter
from itertools import combinations

import pytest
from live_service import call, live_service

from openmanus_rl.envs.base import LONGEST_ACTION, SPLITS, EpisodeOver, Task
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.bm25 import Bm25Index
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.searchqa import SearchQA
from openmanus_rl.envs.searchqa.encyclopedia import RELATIONS, encyclopedia
from openmanus_rl.envs.searchqa.questions import own_questions
from openmanus_rl.envs.text import normal_answer
from openmanus_rl.errors import UserError


def started(number: int = 0, **options: object) -> SearchQA:
    world = SearchQA(**options)
    world.reset(Task("searchqa", f"searchqa_{number}"))
    return world


def test_bm25_is_its_formula():
    """Three documents, worked out by hand: idf(cat) = ln(1 + 1.5/2.5); the shorter one with one cat comes first."""
    index = Bm25Index(["cat", "cat dog dog dog", "bird"], k1=1.2, b=0.75)
    places, weights = index._postings["cat"]
    assert list(places) == [0, 1]
    assert weights[0] == pytest.approx(0.47000 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 1 / 2)), abs=1e-4)
    assert index.search("cats", 5) == [0, 1]
    assert index.search("the dog", 5) == [1]
    assert index.search("fish", 5) == []
    assert index.search("cat", 1) == [0]


def test_of_equal_documents_the_earlier_comes_first():
    assert Bm25Index(["a fox"] * 4).search("fox", 3) == [0, 1, 2]


def test_every_fact_stands_on_its_page_and_names_a_page_or_a_value():
    book = encyclopedia()
    texts = {document.title: document.text for document in book.documents}
    assert len(texts) == len(book.documents) == 1250
    for (thing, relation), value in book.facts.items():
        assert value in texts[thing]
        to = next(r.to for r in RELATIONS if r.name == relation and r.of == book.kinds[thing])
        assert to == "value" or book.kinds[value] == to


def test_a_capital_lies_in_its_country():
    book = encyclopedia()
    for (country, relation), city in book.facts.items():
        assert relation != "capital" or book.facts[city, "country"] == country


def test_questions_have_one_to_three_hops_and_their_answer_is_not_in_the_question():
    questions = own_questions()
    assert Counter(question.hops for question in questions) == {1: 2000, 2: 2000, 3: 2000}
    assert len({question.text for question in questions}) == 6000
    texts = {document.title: document.text for document in encyclopedia().documents}
    for question in questions:
        assert question.answers[0] not in question.text
        assert question.pages[0] in question.text
        for page, following in zip(question.pages, (*question.pages[1:], *question.answers), strict=True):
            assert following in texts[page]


def test_a_question_s_number_never_changes():
    assert own_questions()[1].text == "Who is the mayor of the city where Hio Rukoski was born?"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The Beatles", "beatles", True),
        ("  Hio   Rukoski. ", "hio rukoski", True),
        ("O'Neil", "ONeil", True),
        ("an apple a day", "apple day", True),
        ("Paris, France", "Paris", False),
        ("1900", "1901", False),
    ],
)
def test_answers_are_compared_without_case_punctuation_articles_and_spaces(one, other, same):
    assert (normal_answer(one) == normal_answer(other)) is same


def test_a_search_shows_the_best_pages_between_information_tags():
    text = started().step("<search>Hio Rukoski</search>").observation.text
    assert text.startswith("<information>Doc 1 (Title: Hio Rukoski) ")
    assert text.endswith("</information>")
    assert text.count("(Title: ") == 3
    assert started(top_k=1).step("<search>Hio Rukoski</search>").observation.text.count("(Title: ") == 1
    assert "Nothing was found" in started().step("<search>qqq</search>").observation.text


@pytest.mark.parametrize(
    "wrap", ["{}", "<think>well</think> {} and so on", "Action:\n{}\n", "{}<search>later</search>"]
)
def test_the_right_answer_pays_and_ends_however_it_is_wrapped(wrap):
    world = started(1)
    answer = own_questions()[1].answers[0]
    result = world.step(wrap.format(f"<answer> {answer.upper()}. </answer>"))
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)
    with pytest.raises(EpisodeOver):
        world.step("<search>x</search>")


def test_of_several_tags_the_first_counts():
    world = started(1)
    assert not world.step("<search>x</search><answer>y</answer>").done
    assert world.step("<answer>y</answer><search>x</search>").done


def test_a_wrong_answer_ends_without_pay():
    result = started().step("<answer>nobody</answer>")
    assert (result.reward, result.terminated, result.success) == (0.0, True, False)
    assert own_questions()[0].answers[0] not in result.observation.text


@pytest.mark.parametrize(
    "action",
    [
        "",
        "hello",
        "<search></search>",
        "<search> </search>",
        "<answer>x",
        "<search>" * 2_000,
        "x" * (LONGEST_ACTION + 1),
    ],
)
def test_what_is_no_action_says_so_and_uses_up_a_turn(action):
    world = started(max_steps=2)
    result = world.step(action)
    assert result.info["invalid"]
    assert not result.done
    assert world.step(action).truncated


def test_what_is_shown_is_what_is_parsed():
    for form in SearchQA.grammar.forms:
        assert form.shown in started().instructions()
        assert SearchQA.grammar.parse(form.shown)


def test_splits_share_no_question_and_leave_none_out():
    items = {split: set(SearchQA.item_ids(split)) for split in SPLITS}
    assert not any(items[one] & items[other] for one, other in combinations(SPLITS, 2))
    assert set().union(*items.values()) == {f"searchqa_{n}" for n in range(6000)}


def test_hops_can_be_chosen():
    items = list(SearchQA.item_ids("test", min_hops=2, max_hops=2))
    assert {own_questions()[int(item.removeprefix("searchqa_"))].hops for item in items} == {2}


def test_the_expert_follows_the_hops():
    assert baseline_success("searchqa", "expert", "test", 200).rate == 1.0


def test_the_expert_needs_a_search_for_each_hop():
    world = started(2)  # three hops
    for _ in range(3):
        assert world.expert_action().startswith("<search>")
        world.step(world.expert_action())
    assert world.step(world.expert_action()).success


def test_the_answer_is_told_nowhere_before_it_is_found():
    world = started(2)
    told = [world.instructions(), world.render(), world.state_key(), str(world.snapshot())]
    told.append(world.step("nonsense").observation.text)
    assert own_questions()[2].answers[0] not in " ".join(told)


def test_a_restored_snapshot_goes_on_exactly_as_before():
    world = started(2)
    world.step(world.expert_action())
    kept, key = json.loads(json.dumps(world.snapshot())), world.state_key()
    other = SearchQA()
    other.restore(kept)
    assert other.state_key() == key
    assert other.step(other.expert_action()) == world.step(world.expert_action())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"min_hops": 0}, "min_hops"),
        ({"min_hops": 3, "max_hops": 2}, "max_hops"),
        ({"top_k": 0}, "top_k"),
        ({"max_steps": 0}, "max_steps"),
        ({"corpus_file": "x"}, "questions_file"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options, named):
    with pytest.raises(UserError, match=named):
        SearchQA(**options)


def test_a_corpus_and_questions_can_come_from_files(tmp_path):
    pages = [{"id": "0", "contents": '"Oslo"\nOslo is the capital of Norway.'}, {"title": "Rome", "text": "In Italy."}]
    asked = [{"question": "What is the capital of Norway?", "golden_answers": ["Oslo", "Oslo city"]}]
    corpus, questions = tmp_path / "corpus.jsonl", tmp_path / "questions.jsonl"
    corpus.write_text("\n".join(map(json.dumps, pages)) + "\n\n")
    questions.write_text("\n".join(map(json.dumps, asked)))
    options = {"corpus_file": str(corpus), "questions_file": str(questions)}
    assert [item for split in SPLITS for item in SearchQA.item_ids(split, **options)] == ["searchqa_0"]
    world = started(0, **options)
    seen = world.step(world.expert_action()).observation.text
    assert seen == "<information>Doc 1 (Title: Oslo) Oslo is the capital of Norway.</information>"
    assert world.step(world.expert_action()).success
    world = started(0, **options)
    assert world.step("<answer>the oslo city</answer>").success


@pytest.mark.parametrize("line", ["{", "[1]", '{"question": "x"}', '{"answer": "x"}'])
def test_a_wrong_line_of_a_file_is_named(tmp_path, line):
    corpus, questions = tmp_path / "c.jsonl", tmp_path / "q.jsonl"
    corpus.write_text('{"title": "a", "text": "b"}')
    questions.write_text(line)
    with pytest.raises(UserError, match="line 1 of"):
        SearchQA(corpus_file=str(corpus), questions_file=str(questions))


def test_an_agentgym_client_searches_and_answers():
    with live_service(environment_class("searchqa")) as url:
        index = call("POST", f"{url}/create", {"id": 0}).content
        seen = call("POST", f"{url}/reset", {"env_idx": index, "id": 1}).content
        assert seen == "Question: Who is the mayor of the city where Hio Rukoski was born?"
        assert call("GET", f"{url}/observation?env_idx={index}").content == seen
        step = call("POST", f"{url}/step", {"env_idx": index, "action": "<search>Hio Rukoski</search>"}).content
        assert step == {"observation": step["observation"], "reward": 0.0, "done": False, "info": None}
        assert step["observation"].startswith("<information>")
        assert call("POST", f"{url}/step", {"env_idx": index, "action": "<answer>x</answer>"}).content["done"]
        assert call("POST", f"{url}/close", {"env_idx": index}).content is True
