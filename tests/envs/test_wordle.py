"""Wordle: its colours, its tasks, and that the secret stays secret."""

import json
import os
import subprocess
import sys
from itertools import chain, islice, product

import pytest

from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.items import seeded
from openmanus_rl.envs.wordle import Wordle
from openmanus_rl.envs.wordle.words import colours_of, word_list
from openmanus_rl.errors import UserError


def started(word: str, **options: object) -> Wordle:
    wordle = Wordle(**options)
    wordle.reset(Task("wordle", f"wordle_{wordle.words.index(word)}"))
    return wordle


@pytest.mark.parametrize(
    ("guess", "secret", "colours"),
    [
        ("crane", "crane", "ggggg"),
        ("light", "night", "bgggg"),
        ("heart", "earth", "yyyyy"),
        ("apple", "plant", "yybyb"),  # the secret's one p colours the guess's first p only
        ("sheep", "speed", "gbggy"),
        ("eagle", "berry", "ybbbb"),  # one e, and it is not the last letter
        ("geese", "those", "bbbgg"),  # the green e leaves no e for the yellow ones
        ("array", "marry", "yygbg"),  # two r: one green, one yellow; one a: the second a is black
    ],
)
def test_repeated_letters_are_coloured_as_often_as_the_secret_has_them(guess, secret, colours):
    assert colours_of(guess, secret) == colours


def test_the_list_has_distinct_common_five_letter_words():
    words = word_list()
    assert len(words) == len(set(words)) == 1293
    assert all(len(word) == 5 and word.isascii() and word.isalpha() and word.islower() for word in words)


def test_a_words_number_never_changes():
    assert word_list()[:5] == ("about", "house", "water", "light", "night")
    assert (word_list().index("crane"), word_list().index("zesty")) == (62, 1292)


def test_a_guess_is_answered_with_each_letter_and_its_colour():
    assert started("crane").step("t r a i n").observation.text == "t:b r:g a:g i:b n:y"


def test_without_echo_the_colours_stand_alone():
    assert started("crane", echo=False).step("t r a i n").observation.text == "b g g b y"


@pytest.mark.parametrize("spelling", ["c r a n e", "crane", "CRANE", " C r a n e "])
def test_every_spelling_of_the_secret_wins(spelling):
    result = started("crane").step(spelling)
    assert (result.reward, result.terminated, result.truncated, result.success) == (1.0, True, False, True)


@pytest.mark.parametrize("action", ["q q q q q", "zzzzz", "cran", "c ra ne", "cranes", "", "guess crane"])
def test_what_is_no_word_of_the_list_costs_and_uses_up_a_guess(action):
    wordle = started("crane", max_guesses=2)
    result = wordle.step(action)
    assert (result.observation.text, result.reward, result.done) == ("invalid word", -0.05, False)
    assert result.info["invalid"]
    result = wordle.step(action)
    assert (result.terminated, result.truncated, result.success) == (True, False, False)


def test_a_word_beyond_the_chosen_ones_is_not_accepted():
    assert "invalid" in started("about", words=16).step("crane").info
    assert "invalid" not in started("about", words=64).step("crane").info


def test_after_the_last_guess_the_game_is_lost_and_over():
    wordle = started("crane")
    results = [wordle.step("about") for _ in range(6)]
    assert [result.terminated for result in results] == [False] * 5 + [True]
    assert sum(result.reward for result in results) == 0
    with pytest.raises(EpisodeOver):
        wordle.step("crane")


def test_nothing_can_be_guessed_before_the_first_reset():
    with pytest.raises(EpisodeOver, match="reset"):
        Wordle().step("crane")


def test_the_secret_is_told_nowhere():
    wordle = started("crane", max_guesses=3)
    told = [wordle.instructions().replace(Wordle.grammar.describe(), "")]
    for guess in ("about", "nonsense", "house"):
        result = wordle.step(guess)
        told += [result.observation.text, str(dict(result.info)), wordle.state_key(), wordle.render()]
    text = " ".join(told).lower()
    assert "crane" not in text
    assert "c r a n e" not in text


def test_what_is_shown_is_what_is_parsed():
    for form in Wordle.grammar.forms:
        assert form.shown in Wordle().instructions()
        assert Wordle.grammar.parse(form.shown)
        assert "invalid" not in started("about").step(form.shown).info


def test_filtered_vocab_holds_the_words_that_fit_all_colours():
    wordle = started("crane")
    assert wordle.filtered_vocab() == list(word_list())
    wordle.step("train")
    fitting = wordle.filtered_vocab()
    assert "crane" in fitting
    assert fitting == [word for word in word_list() if colours_of("train", word) == colours_of("train", "crane")]


def test_filtered_vocab_is_all_words_before_the_first_game():
    assert Wordle(words=32).filtered_vocab() == list(word_list()[:32])


def test_splits_share_no_word_and_leave_none_out():
    numbers = [item_id for split in SPLITS for item_id in Wordle.item_ids(split)]
    assert len(numbers) == len(set(numbers)) == len(word_list())
    small = [item_id for split in SPLITS for item_id in Wordle.item_ids(split, words=64)]
    assert sorted(small) == sorted(f"wordle_{n}" for n in range(64))


def test_fewer_words_keep_the_split_of_each_word():
    assert set(Wordle.item_ids("test", words=64)) <= set(Wordle.item_ids("test"))


def test_an_item_is_the_same_word_in_every_process():
    code = (
        "from openmanus_rl.envs.wordle import Wordle; from openmanus_rl.envs.base import Task\n"
        "w = Wordle(); w.reset(Task('wordle', 'wordle_62')); print(w.step('train').observation.text)\n"
        "print(w.expert_action(), list(Wordle.item_ids('test'))[:9])"
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
    assert len(outputs) == 1
    assert outputs.pop().startswith("t:b r:g a:g i:b n:y\n")


@pytest.mark.parametrize("item_id", ["wordle", "wordle_-1", "wordle_007", "crane", "wordle_crane"])
def test_a_wrong_item_id_is_refused_with_the_form_expected(item_id):
    with pytest.raises(UserError, match="wordle_<n>"):
        Wordle().reset(Task("wordle", item_id))


def test_a_number_beyond_the_list_is_refused_with_the_last_one():
    with pytest.raises(UserError, match="wordle_63"):
        Wordle(words=64).reset(Task("wordle", "wordle_64"))


@pytest.mark.parametrize(("option", "value"), [("words", 1), ("words", 100_000), ("max_guesses", 0)])
def test_a_wrong_option_is_refused_by_name(option, value):
    with pytest.raises(UserError, match=option):
        Wordle(**{option: value})


def test_two_games_never_see_each_other():
    first, second = started("crane"), started("about")
    first.step("train")
    second.step("house")
    assert first.step("crane").success
    assert not second.step("crane").success


def test_a_restored_snapshot_goes_on_exactly_as_before():
    chance = seeded("wordle snapshot")
    for word in ("crane", "about", "zebra"):
        wordle = started(word)
        wordle.step(wordle.random_action(chance.random()))
        wordle.step("nonsense")
        saved = json.loads(json.dumps(wordle.snapshot()))
        other = Wordle()
        other.restore(saved)
        assert other.state_key() == wordle.state_key()
        for _ in range(4):
            action = wordle.random_action(chance.random())
            assert other.step(action) == wordle.step(action)
        with pytest.raises(EpisodeOver):
            other.step("crane")


def test_what_is_known_counts_in_the_state_key_not_how_it_was_learned():
    first, second, third = started("crane"), started("crane"), started("crane")
    for wordle, guesses in ((first, ["about", "house"]), (second, ["house", "about"]), (third, ["house", "light"])):
        for guess in guesses:
            wordle.step(guess)
    assert first.state_key() == second.state_key() != third.state_key()
    second.step("nonsense")
    assert first.state_key() != second.state_key()


def test_the_expert_finds_every_word_of_the_list():
    for split in SPLITS:
        expert = baseline_success("wordle", "expert", split, n=2000)
        assert expert.successes == expert.episodes


@pytest.mark.parametrize(("words", "low", "high"), [(16, 0.2, 0.5), (64, 0.02, 0.2)])
def test_chance_alone_finds_about_six_words_in_the_list(words, low, high):
    outcomes = [baseline_success("wordle", "random", "train", seed=seed, options={"words": words}) for seed in range(9)]
    assert low < sum(o.successes for o in outcomes) / sum(o.episodes for o in outcomes) < high


def test_a_task_may_come_with_a_guess_that_costs_none():
    wordle = Wordle(words=8)
    observation = wordle.reset(Task("wordle", "wordle_30005"))
    given, secret = wordle.words[2], wordle.words[5]
    assert observation.text == Wordle(words=8)._seen(given, colours_of(given, secret)).text
    results = [wordle.step(given) for _ in range(6)]
    assert [result.terminated for result in results] == [False] * 5 + [True]
    assert wordle.filtered_vocab() == [
        word for word in wordle.words if colours_of(given, word) == colours_of(given, secret)
    ]


def test_tasks_with_a_given_guess_are_all_pairs_of_two_words_and_in_one_split_each():
    splits = [list(Wordle.item_ids(split, words=16, given_guess=True)) for split in SPLITS]
    assert sum(map(len, splits)) == 16 * 15 == len(set(chain(*splits)))
    assert all(splits)


@pytest.mark.parametrize("item_id", ["wordle_30002", "wordle_90001", "wordle_10009"])
def test_a_given_guess_that_is_the_secret_or_no_word_of_the_game_is_refused(item_id):
    with pytest.raises(UserError, match="not a task of this game"):
        Wordle(words=8).reset(Task("wordle", item_id))


def test_a_word_list_of_ones_own_is_played_in_its_order(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("Zebra\napple\ntoo\nlonger\napple\nmango\n")
    world = Wordle(word_list=str(path))
    assert world.words == ("zebra", "apple", "mango")
    world.reset(Task("wordle", "wordle_2"))
    assert world.step("m a n g o").success
    assert Wordle(word_list=str(path), words=2).words == ("zebra", "apple")
    listed = [item_id for split in SPLITS for item_id in Wordle.item_ids(split, word_list=str(path))]
    assert sorted(listed) == ["wordle_0", "wordle_1", "wordle_2"]


def test_a_list_longer_than_ten_thousand_words_has_room_for_all_its_items(tmp_path):
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(word) for word in islice(product(letters, repeat=5), 10_050)]
    path = tmp_path / "words.txt"
    path.write_text("\n".join(words))
    world = Wordle(word_list=str(path))
    world.reset(Task("wordle", "wordle_10049"))
    assert world.step(words[10_049]).success
    assert words[0] in world.reset(Task("wordle", "wordle_1000005")).text.replace(":b", "").replace(":y", "").replace(
        ":g", ""
    ).replace(" ", "")


def test_a_word_list_that_is_missing_or_empty_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        Wordle(word_list=str(tmp_path / "none.txt"))
    (tmp_path / "few.txt").write_text("word\n")
    with pytest.raises(UserError, match="0 words of five letters"):
        Wordle(word_list=str(tmp_path / "few.txt"))


def test_without_penalties_what_is_no_word_costs_a_guess_only():
    world = Wordle(penalties=False)
    world.reset(Task("wordle", "wordle_0"))
    assert (world.step("xxxxx").reward, world.step("no").reward) == (0.0, 0.0)
