"""`openmanus-rl env check`: a sound world passes every check, and each check fails on a world broken in its way."""

from pathlib import Path

import pytest
import toy_worlds
from live_service import live_service
from typer.testing import CliRunner

from openmanus_rl.cli.main import app
from openmanus_rl.envs.check.run import CHECKS, FAST_CHECKS, check_server, check_world
from openmanus_rl.envs.registry import ENVIRONMENTS
from openmanus_rl.errors import UserError

WORLDS = Path(__file__).with_name("toy_worlds.py")
BY_NAME = {check.name: check for check in CHECKS}

BROKEN = [
    ("same task in every process", toy_worlds.DependsOnHashSeed, "PYTHONHASHSEED"),
    ("identical resets in a group", toy_worlds.CountsItsResets, "(start "),
    ("sessions are isolated", toy_worlds.SharesItsState, "turn"),
    ("nothing after the end", toy_worlds.GoesOnAfterTheEnd, "EpisodeOver"),
    ("calls end in time", toy_worlds.HangsOnBadActions, "no answer within"),
    ("grammar shown = grammar parsed", toy_worlds.ShowsWhatItRefuses, "'turn right' is shown, and does not match"),
    ("bad actions are told", toy_worlds.KeepsBadActionsQuiet, "does not say so"),
    ("odd actions do no harm", toy_worlds.CrashesOnLongActions, "100,000 letters is not answered"),
    ("success rule and score range", toy_worlds.PaysTooMuch, "a return of 5"),
    ("success rule and score range", toy_worlds.SucceedsBeforeTheEnd, "a success before the end"),
    ("disjoint splits", toy_worlds.SameTasksInTwoSplits, "sound_30 is in train and in validation"),
    (
        "disjoint splits",
        toy_worlds.SameTasksByOtherNames,
        "sound_46 of validation is the same task as sound_1 of train",
    ),
    ("expert succeeds", toy_worlds.HasABadExpert, "of 10 tasks"),
]


def run(world, checks, **more):
    with live_service(world, more.get("options"), spec=f"{WORLDS}:{world.__name__}") as url:
        return list(check_server(url, checks=checks, name=f"{WORLDS}:{world.__name__}", world=world, **more))


def test_a_sound_world_passes_every_fast_check():
    results = run(toy_worlds.Sound, FAST_CHECKS)
    assert [(result.status, result.name) for result in results] == [("passed", check.name) for check in FAST_CHECKS]


@pytest.mark.parametrize(("name", "world", "told"), BROKEN, ids=lambda value: getattr(value, "__name__", None))
def test_a_check_fails_on_a_world_broken_in_its_way(name, world, told):
    hurry = {"seconds": 1.0, "options": {"nap": 3.0}} if world is toy_worlds.HangsOnBadActions else {}
    (result,) = run(world, [BY_NAME[name]], **hurry)
    assert result.status == "failed"
    assert told in result.detail


def test_every_check_is_shown_to_fail():
    assert {name for name, *_ in BROKEN} == {check.name for check in FAST_CHECKS}


def test_a_check_that_cannot_tell_says_why():
    with live_service(toy_worlds.Sound) as url:
        results = {result.name: result for result in check_server(url, ["sound_1", "sound_2"], checks=FAST_CHECKS)}
    unknown = {name for name, result in results.items() if result.status == "not checked"}
    assert unknown == {"same task in every process", "grammar shown = grammar parsed", "disjoint splits"}
    assert {result.status for name, result in results.items() if name not in unknown} == {"passed"}


SMALLER = {"webshop": {"num_products": 1000}}
"""Options under which a world is made faster in each of the processes that a check starts."""
INSTALLED = sorted(set(ENVIRONMENTS) - {"gym", "sciworld"})
"""Without gym, which is nothing until it is told what to play, and sciworld, which slow tests install and play."""


@pytest.mark.parametrize("name", INSTALLED)
def test_every_built_in_world_passes(name):
    results = list(check_world(name, SMALLER.get(name, {}), checks=FAST_CHECKS, seconds=60.0))
    assert [result for result in results if result.status == "failed"] == []
    assert len(results) == len(FAST_CHECKS)


def test_the_other_wording_of_alfworld_passes_too():
    results = list(check_world("alfworld", {"wording": "move"}, checks=FAST_CHECKS, seconds=60.0))
    assert [result for result in results if result.status == "failed"] == []


def test_the_grammar_is_that_of_a_world_and_not_of_its_class():
    (result,) = run(toy_worlds.StatesItsGrammarLate, [BY_NAME["bad actions are told"]])
    assert (result.status, result.detail) == ("passed", "10 bad actions")


@pytest.mark.parametrize(("name", "options"), [("maze", {"max_steps": 40}), ("wordle", {"max_guesses": 20})])
def test_the_score_range_follows_the_options(name, options):
    (result,) = check_world(name, options, checks=[BY_NAME["success rule and score range"]])
    assert result.status == "passed", result.detail


def test_no_more_sessions_are_played_at_once_than_the_world_does():
    (result,) = run(toy_worlds.PlaysTwoAtOnce, [BY_NAME["sessions are isolated"]])
    assert (result.status, result.detail.split(",")[1]) == ("passed", " 2 at once")


def test_a_world_is_closed_also_where_it_fails_the_check(tmp_path):
    trace = tmp_path / "trace"
    (result,) = run(toy_worlds.LeavesATrace, [BY_NAME["nothing after the end"]], options={"trace": str(trace)})
    assert result.status == "failed"
    assert trace.read_text().count("made") == trace.read_text().count("closed")


def test_a_server_whose_world_is_not_known_here_needs_items():
    with live_service(toy_worlds.Sound) as url, pytest.raises(UserError, match="--item"):
        list(check_server(url))


def test_a_url_where_nothing_answers_is_a_users_mistake():
    with pytest.raises(UserError, match="does not answer"):
        list(check_server("http://127.0.0.1:1"))


def test_the_command_prints_a_table_and_exits_with_1_on_a_failure(monkeypatch):
    monkeypatch.setattr(
        "openmanus_rl.cli.env.FAST_CHECKS", (BY_NAME["expert succeeds"], BY_NAME["bad actions are told"])
    )
    with live_service(toy_worlds.Sound) as url:
        good = CliRunner().invoke(app, ["env", "check", url, "--item", "sound_1"])
    assert good.exit_code == 0
    assert good.output.count("passed") == 2
    assert good.output.endswith("\n")
    with live_service(toy_worlds.KeepsBadActionsQuiet) as url:
        bad = CliRunner().invoke(app, ["env", "check", url, "--item", "sound_1"])
    assert bad.exit_code == 1
    assert "failed" in bad.output


@pytest.mark.slow
@pytest.mark.parametrize(("world", "status"), [("Sound", "passed"), ("Leaks", "failed")])
def test_the_memory_check_tells_a_leak_from_none(world, status):
    (result,) = check_world(f"{WORLDS}:{world}", checks=[BY_NAME["memory stays"]])
    assert result.status == status, result.detail


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTALLED)
def test_no_built_in_world_leaks(name):
    (result,) = check_world(name, checks=[BY_NAME["memory stays"]], seconds=60.0)
    assert result.status == "passed", result.detail
