"""Worlds that have easy and hard tasks, or kinds of them, say which the present one is."""

import pytest

from openmanus_rl.data.tasks import build_tasks, read_tasks, write_tasks
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.items import in_doubling_steps
from openmanus_rl.envs.registry import make_environment


def solved_in(world) -> int:
    """Turns that the expert takes."""
    for turn in range(1, 100):
        if world.step(world.expert_action()).done:
            return turn
    raise AssertionError("the expert came to no end")


@pytest.mark.parametrize(
    ("number", "name"),
    [(1, "steps_1_to_2"), (2, "steps_1_to_2"), (3, "steps_3_to_4"), (5, "steps_5_to_8"), (16, "steps_9_to_16")],
)
def test_ranges_double(number, name):
    assert in_doubling_steps("steps", number) == name


@pytest.mark.parametrize(("name", "unit"), [("maze", "steps"), ("todo", "calls"), ("weather", "calls")])
def test_the_difficulty_is_what_the_expert_needs(name, unit):
    for task in build_tasks(name, "train", 12):
        world = make_environment(name)
        world.reset(task)
        assert task.extra["difficulty"] == world.difficulty() == in_doubling_steps(unit, solved_in(world))


def test_textcraft_names_the_depth_and_searchqa_the_hops():
    assert {
        task.extra["difficulty"] for task in build_tasks("textcraft", "train", 50, {"min_depth": 2, "max_depth": 2})
    } == {"depth_2"}
    assert {task.extra["difficulty"] for task in build_tasks("searchqa", "train", 50, {"min_hops": 3})} == {"hops_3"}


def test_alfworld_names_the_type():
    options = {"task_types": ["pick_heat_then_place_in_recep"]}
    assert {task.extra["difficulty"] for task in build_tasks("alfworld", "train", 5, options)} == set(
        options["task_types"]
    )


def test_babyai_names_the_level():
    pytest.importorskip("minigrid")
    world = make_environment("babyai", levels=["GoToRedBall"])
    world.reset(Task("babyai", next(type(world).item_ids("train", levels=["GoToRedBall"]))))
    assert world.difficulty() == "GoToRedBall"


def test_a_world_without_difficulties_writes_none_into_its_task_file(tmp_path):
    write_tasks(tmp_path / "wordle.parquet", build_tasks("wordle", "train", 2))
    assert [set(task.extra) for task in read_tasks(tmp_path / "wordle.parquet")] == [{"index", "split"}] * 2
    write_tasks(tmp_path / "maze.parquet", build_tasks("maze", "train", 2))
    assert [set(task.extra) for task in read_tasks(tmp_path / "maze.parquet")] == [{"index", "split", "difficulty"}] * 2
