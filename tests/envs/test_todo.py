"""Tools and the to-do world made of them: calls, checks of the end state, and the routes."""

import json
from itertools import combinations
from typing import Any

import pytest
from live_service import call, live_service

from openmanus_rl.envs.base import SPLITS, EpisodeOver, Task
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.tools.calls import Call, read_call
from openmanus_rl.envs.tools.todo import Todo, TodoService, make_account, todo_tasks
from openmanus_rl.envs.tools.tool import ToolError, call_tool, tool, tools_of
from openmanus_rl.envs.tools.world import ToolService, same_answer
from openmanus_rl.errors import UserError


class Counter(ToolService):
    """The smallest service: a number that can be raised."""

    @tool("raise the number")
    def add(self, amount: int, twice: bool, scale: float, note: str) -> Any:
        self.state["number"] = self.state.get("number", 0) + amount * (2 if twice else 1) * scale
        return note


def number_of(goal: str) -> int:
    """A task whose goal begins like this."""
    return next(number for number, task in enumerate(todo_tasks()) if task.goal.startswith(goal))


def started(goal: str = "How many open tasks", **options: object) -> Todo:
    world = Todo(**options)
    world.reset(Task("todo", f"todo_{number_of(goal)}"))
    return world


def act(world: Todo, tool_name: str, **arguments: object):
    return world.step(Call(tool_name, arguments).write())


@pytest.mark.parametrize(
    ("action", "read"),
    [
        ("get_projects with Action Input: {}", Call("get_projects", {})),
        ("Action: get_projects with Action Input: {}", Call("get_projects", {})),
        ('Thought: look.\n\nAction: f with Action Input: {"a": 1}\nObservation: made up', Call("f", {"a": 1})),
        ("Action: f() with Action Input: {'a': True, 'b': [\"x\"]}", Call("f", {"a": True, "b": ["x"]})),
        ("f with Action Input:", Call("f", {})),
        ('f with Action Input: {\n  "a": "}"\n}', Call("f", {"a": "}"})),
        ("get_projects", None),
        ("", None),
    ],
)
def test_a_call_is_read_as_json_or_a_plain_dictionary(action, read):
    assert read_call(action) == read


@pytest.mark.parametrize(
    "given",
    ["[1]", "3", "{", "{'a': __import__('os')}", "{'a': 1 + open('x')}", "x" * 9000, "(" * 9000, "[" * 9000, "{[]: 1}"],
)
def test_an_input_that_is_no_object_is_refused_and_never_evaluated(given):
    with pytest.raises(ToolError, match="object"):
        read_call(f"f with Action Input: {given}")


def test_a_tool_is_described_by_its_signature():
    assert tools_of(Counter)["add"].describe() == (
        "add(amount: integer, twice: boolean, scale: number, note: string): raise the number"
    )
    assert list(tools_of(Counter)) == ["finish", "check_valid_actions", "add"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"amount": 1, "twice": False, "scale": 1}, "needs note"),
        ({"amount": 1, "twice": False, "scale": 1, "note": "x", "more": 2}, "takes no 'more'"),
        ({"amount": 1.5, "twice": False, "scale": 1, "note": "x"}, "amount must be integer"),
        ({"amount": True, "twice": False, "scale": 1, "note": "x"}, "amount must be integer"),
        ({"amount": "1e999", "twice": False, "scale": 1, "note": "x"}, "amount must be integer"),
        ({"amount": 1, "twice": "maybe", "scale": 1, "note": "x"}, "twice must be boolean"),
        ({"amount": 1, "twice": False, "scale": [], "note": "x"}, "scale must be number"),
        ({"amount": 1, "twice": False, "scale": 1, "note": {}}, "note must be string"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_wrong(arguments, why):
    service = Counter({})
    with pytest.raises(ToolError, match=why):
        call_tool(service, "add", arguments)
    assert service.state == {}


def test_numbers_and_truths_may_come_as_text_and_names_as_numbers():
    service = Counter({})
    assert call_tool(service, "add", {"amount": "3", "twice": "True", "scale": "0.5", "note": 7}) == "7"
    assert service.state == {"number": 3}


class Rows(ToolService):
    """A service whose tool takes a list, as a sheet's do."""

    @tool("add a row")
    def add_row(self, values: list[str]) -> list[str]:
        self.state["row"] = values
        return values


def test_a_tool_may_take_a_list():
    service = Rows({})
    assert tools_of(Rows)["add_row"].describe() == "add_row(values: list): add a row"
    assert call_tool(service, "add_row", {"values": ["a", "b"]}) == ["a", "b"]
    with pytest.raises(ToolError, match="values must be list, not 'a'"):
        call_tool(service, "add_row", {"values": "a"})


def test_an_unknown_tool_is_refused_with_the_closest():
    with pytest.raises(ToolError, match="Did you mean add"):
        call_tool(Counter({}), "ad", {})
    with pytest.raises(ToolError, match="no tool"):
        call_tool(Counter({}), "__init__", {"state": {}})


@pytest.mark.parametrize(
    ("given", "right", "same"),
    [
        (3, 3, True),
        ("3", 3, True),
        (3.0, 3, True),
        ("three", 3, False),
        (10**400, 3, False),
        (float("nan"), 3, False),
        ([3], 3, False),
        ("The Park.", "park", True),
        ("park", "library", False),
        (["b", "a"], ["A", "B"], True),
        ("a, b", ["b", "a"], True),
        (["a"], ["a", "b"], False),
    ],
)
def test_answers_are_compared_by_what_they_mean(given, right, same):
    assert same_answer(given, right) is same


def test_the_service_s_tools_do_what_they_say():
    service = TodoService(make_account(0))
    projects = call_tool(service, "get_projects", {})
    tasks = call_tool(service, "get_tasks", {"project_id": projects[0]["id"]})
    first, second, third = (task["id"] for task in tasks[:3])
    assert call_tool(service, "get_task_duration", {"task_id": first})["duration"].endswith("(minute)")
    assert call_tool(service, "get_task_description", {"task_id": first})["description"].startswith("Place: ")
    call_tool(service, "complete_task", {"task_id": first})
    call_tool(service, "delete_task", {"task_id": second})
    call_tool(service, "update_task", {"task_id": third, "due_date": "2030-01-02"})
    left = {task["id"]: task for task in call_tool(service, "get_tasks", {"project_id": projects[0]["id"]})}
    assert first not in left
    assert second not in left
    assert left[third]["due_date"] == "2030-01-02"
    for wrong in (first, second, "1"):
        with pytest.raises(ToolError, match="no open task"):
            call_tool(service, "complete_task", {"task_id": wrong})
    with pytest.raises(ToolError, match="no date"):
        call_tool(service, "update_task", {"task_id": third, "due_date": "tomorrow"})


def test_a_question_pays_for_its_answer_only():
    for goal in ("How many open tasks", "Where does", "List the tasks", "How many minutes do all"):
        task = todo_tasks()[number_of(goal)]
        assert act(started(goal), "finish", answer=task.right_answer).success
        result = act(started(goal), "finish", answer="nonsense")
        assert (result.reward, result.terminated, result.success) == (0.0, True, False)


def test_a_question_does_not_pay_if_something_was_changed():
    world = started("How many open tasks")
    task = todo_tasks()[number_of("How many open tasks")]
    act(world, "delete_task", task_id=next(iter(task.state["tasks"])))
    assert not act(world, "finish", answer=task.right_answer).success


def test_a_change_pays_for_the_end_state_only():
    task = todo_tasks()[number_of("Complete '")]
    assert not act(started("Complete '"), "finish", answer="done").success
    world = started("Complete '")
    world.step(task.plan[-2].write())  # without looking first
    assert act(world, "finish", answer="whatever").success
    world = started("Complete '")
    world.step(task.plan[-2].write())
    others = [number for number in task.state["tasks"] if number != task.plan[-2].arguments["task_id"]]
    act(world, "complete_task", task_id=others[0])
    assert not act(world, "finish", answer="done").success


def test_no_task_asks_for_a_change_that_changes_nothing():
    for task in todo_tasks():
        service = TodoService(json.loads(json.dumps(task.state)))
        for planned in task.plan:
            call_tool(service, planned.tool, planned.arguments)
        assert (service.state == task.state) is task.is_question


def test_two_sessions_never_see_each_others_list():
    goal = "Delete '"
    first, second = started(goal), started(goal)
    while not first.step(first.expert_action()).done:
        pass
    assert second._service.state == todo_tasks()[number_of(goal)].state


@pytest.mark.parametrize(
    "action",
    ["", "hello", "fly with Action Input: {}", "get_tasks with Action Input: {}", "get_tasks with Action Input: 3"],
)
def test_what_cannot_be_called_says_why_and_uses_up_a_turn(action):
    world = started(max_steps=2)
    result = world.step(action)
    assert result.info["invalid"]
    assert not result.done
    assert world.step(action).truncated
    with pytest.raises(EpisodeOver):
        world.step(action)


def test_what_is_shown_is_what_is_parsed():
    for form in Todo.grammar.forms:
        assert form.shown in started().instructions()
        assert Todo.grammar.parse(form.shown)
    assert all(name in started().instructions() for name in tools_of(TodoService))


def test_splits_share_no_task_and_leave_none_out():
    items = {split: set(Todo.item_ids(split)) for split in SPLITS}
    assert not any(items[one] & items[other] for one, other in combinations(SPLITS, 2))
    assert set().union(*items.values()) == {f"todo_{n}" for n in range(len(todo_tasks()))}
    assert len({task.content for task in todo_tasks()}) == len(todo_tasks())


def test_the_expert_does_every_task():
    for split in SPLITS:
        assert baseline_success("todo", "expert", split, 2000).rate == 1.0


def test_a_restored_snapshot_goes_on_exactly_as_before():
    world = started("Complete '")
    for _ in range(3):
        world.step(world.expert_action())
    kept, key = json.loads(json.dumps(world.snapshot())), world.state_key()
    other = Todo()
    other.restore(kept)
    assert other.state_key() == key
    assert other.step(other.expert_action()) == world.step(world.expert_action())


def test_a_wrong_option_or_number_is_refused():
    with pytest.raises(UserError, match="max_steps"):
        Todo(max_steps=0)
    with pytest.raises(UserError, match=f"todo_{len(todo_tasks()) - 1}"):
        Todo().reset(Task("todo", "todo_99999"))


def test_an_agentgym_client_calls_tools():
    with live_service(environment_class("todo")) as url:
        index = call("POST", f"{url}/create", {"id": 0}).content
        seen = call("POST", f"{url}/reset", {"env_idx": index, "id": 3}).content
        assert seen.startswith("Goal: ")
        assert call("GET", f"{url}/observation?env_idx={index}").content == seen
        said = "Thought: I look at the projects.\n\nAction: get_projects with Action Input: {}"
        step = call("POST", f"{url}/step", {"env_idx": index, "action": said}).content
        assert step == {"observation": step["observation"], "reward": 0.0, "done": False}
        assert step["observation"].startswith("Observation: [{")
        said = 'Action: finish with Action Input: {"answer": "done"}'
        assert call("POST", f"{url}/step", {"env_idx": index, "action": said}).content["done"]
        assert call("POST", f"{url}/close", {"env_idx": index}).content is True
