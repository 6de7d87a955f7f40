"""Todo: a person's projects and tasks, to be asked about and changed through a to-do service's tools."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, ClassVar

from openmanus_rl.envs.items import pick, seeded, shuffled
from openmanus_rl.envs.tools.calls import Call
from openmanus_rl.envs.tools.tool import Answer, ToolError, tool
from openmanus_rl.envs.tools.world import ToolService, ToolTask, ToolWorld

ACCOUNTS = 60
"""So many people's to-do lists there are; every kind of goal is set once for each."""

PROJECTS: dict[str, tuple[str, ...]] = {
    "Household": (
        "Clean the kitchen",
        "Water the plants",
        "Repair the lamp",
        "Wash the windows",
        "Sort the mail",
        "Paint the fence",
    ),
    "School": (
        "Read chapter four",
        "Write the essay",
        "Practise the speech",
        "Draw the map",
        "Solve the worksheet",
        "Learn the poem",
    ),
    "Work": (
        "Send the report",
        "Call the supplier",
        "Review the budget",
        "Plan the meeting",
        "Test the printer",
        "Update the slides",
    ),
    "Health": (
        "Go for a run",
        "See the dentist",
        "Stretch for ten minutes",
        "Buy vitamins",
        "Cook a soup",
        "Book a check-up",
    ),
    "Travel": (
        "Renew the passport",
        "Pack the suitcase",
        "Book the hotel",
        "Print the tickets",
        "Change some money",
        "Rent a bike",
    ),
    "Music": (
        "Tune the guitar",
        "Practise scales",
        "Record the demo",
        "Copy the score",
        "Order new strings",
        "Visit the concert",
    ),
    "Garden": (
        "Plant the tulips",
        "Mow the lawn",
        "Prune the roses",
        "Turn the compost",
        "Rake the leaves",
        "Build the trellis",
    ),
}
PLACES = ("library", "kitchen", "office", "garage", "park", "studio", "market", "balcony")
TIPS = ("bring a notebook", "start early", "ask a friend", "check the weather", "use the blue folder")
CITIES = ("Oslo", "Lisbon", "Nairobi", "Quito", "Hanoi", "Montreal")


class TodoService(ToolService):
    """Projects and tasks by id, today's date and where the person is."""

    @tool("today's date, as YYYY-MM-DD")
    def get_user_current_date(self) -> str:
        today: str = self.state["today"]
        return today

    @tool("the city the user is in")
    def get_user_current_location(self) -> str:
        city: str = self.state["city"]
        return city

    @tool("all projects")
    def get_projects(self) -> list[dict[str, Any]]:
        return [{"id": number, **project} for number, project in self.state["projects"].items()]

    @tool("make a project a favourite, or no longer one")
    def update_project(self, project_id: str, is_favorite: bool) -> dict[str, Any]:
        project = self._project(project_id)
        project["is_favorite"] = is_favorite
        return {"id": project_id, **project}

    @tool("the open tasks of a project; priority is from 1 (normal) to 4 (urgent)")
    def get_tasks(self, project_id: str) -> list[dict[str, Any]]:
        self._project(project_id)
        return [
            {"id": number, "content": task["content"], "priority": task["priority"], "due_date": task["due_date"]}
            for number, task in self.state["tasks"].items()
            if task["project_id"] == project_id and not task["is_completed"]
        ]

    @tool("a task's description, with its place and tips")
    def get_task_description(self, task_id: str) -> dict[str, Any]:
        task = self._task(task_id)
        return {"id": task_id, "content": task["content"], "description": task["description"]}

    @tool("how long a task takes, in minutes")
    def get_task_duration(self, task_id: str) -> dict[str, Any]:
        task = self._task(task_id)
        return {"id": task_id, "content": task["content"], "duration": f"{task['minutes']}(minute)"}

    @tool("mark a task as completed")
    def complete_task(self, task_id: str) -> dict[str, Any]:
        task = self._task(task_id)
        task["is_completed"] = True
        return {"message": "The task is completed.", "content": task["content"]}

    @tool("give a task another due date, as YYYY-MM-DD")
    def update_task(self, task_id: str, due_date: str) -> dict[str, Any]:
        task = self._task(task_id)
        try:
            task["due_date"] = date.fromisoformat(due_date).isoformat()
        except ValueError as error:
            raise ToolError(f"due_date is no date as YYYY-MM-DD: {due_date[:50]!r}") from error
        return {"message": "The task is updated.", "content": task["content"], "due_date": task["due_date"]}

    @tool("delete a task")
    def delete_task(self, task_id: str) -> dict[str, Any]:
        content = self._task(task_id)["content"]
        del self.state["tasks"][task_id]
        return {"message": "The task is deleted.", "content": content}

    def possible_calls(self) -> list[Call]:
        projects = [Call("get_tasks", {"project_id": number}) for number in self.state["projects"]]
        tasks = [
            Call(name, {"task_id": number})
            for name in ("get_task_description", "get_task_duration", "complete_task", "delete_task")
            for number in self.state["tasks"]
        ]
        answers = [Call("finish", {"answer": answer}) for answer in ("done", "yes", "no", 1, 2, 3)]
        return [*super().possible_calls(), *projects, *tasks, *answers]

    def _project(self, number: str) -> dict[str, Any]:
        if number not in self.state["projects"]:
            raise ToolError(f"there is no project {number[:50]!r}")
        project: dict[str, Any] = self.state["projects"][number]
        return project

    def _task(self, number: str) -> dict[str, Any]:
        if number not in self.state["tasks"] or self.state["tasks"][number]["is_completed"]:
            raise ToolError(f"there is no open task {number[:50]!r}")
        task: dict[str, Any] = self.state["tasks"][number]
        return task


class Todo(ToolWorld):
    """Answer questions about a person's projects and tasks, or change them as the goal says, then `finish`.

    The rules are those of every tool world. Ids are found with `get_projects` and `get_tasks`. Option: `max_steps`.
    """

    name: ClassVar[str] = "todo"
    service: ClassVar[type[ToolService]] = TodoService

    @classmethod
    def tasks(cls) -> Sequence[ToolTask]:
        return todo_tasks()


class _List:
    """A person's to-do list that a goal is set in: the data, one project of them, one task of that, and chance."""

    def __init__(self, state: dict[str, Any], chance: random.Random) -> None:
        self.state = state
        self.chance = chance
        self.project_id = pick(list(state["projects"]), chance.random())
        self.project = state["projects"][self.project_id]["name"]
        self.tasks = {n: task for n, task in state["tasks"].items() if task["project_id"] == self.project_id}
        self.task_id = pick(list(self.tasks), chance.random())
        self.task = self.tasks[self.task_id]
        self.today = date.fromisoformat(state["today"])

    def plan(self, *calls: Call, answer: Answer = "done", dated: bool = False) -> tuple[Call, ...]:
        """Look, do, finish."""
        looks = [Call("get_user_current_date", {})] if dated else []
        looks += [Call("get_projects", {}), Call("get_tasks", {"project_id": self.project_id})]
        return (*looks, *calls, Call("finish", {"answer": answer}))

    def those(self, name: str, fits: Callable[[dict[str, Any]], bool], **more: str) -> list[Call]:
        """A call for each task of the project that fits."""
        return [Call(name, {"task_id": n, **more}) for n, task in self.tasks.items() if fits(task)]


Goal = tuple[str, tuple[Call, ...], bool]
"""The words, the plan, and whether it is a question."""


def _goals(on: _List) -> Iterator[Goal]:
    task, project, today = on.task, on.project, on.today
    where = f"'{task['content']}' of project {project}"
    yield f"How many open tasks does project {project} have?", on.plan(answer=len(on.tasks)), True
    yield f"What is the priority of {where}?", on.plan(answer=task["priority"]), True
    yield f"When is {where} due? Answer as YYYY-MM-DD.", on.plan(answer=task["due_date"]), True
    asked = [Call("get_task_description", {"task_id": on.task_id})]
    yield f"Where does {where} take place?", on.plan(*asked, answer=task["description"].split(".")[0][7:]), True
    asked = [Call("get_task_duration", {"task_id": on.task_id})]
    yield f"How many minutes does {where} take?", on.plan(*asked, answer=task["minutes"]), True
    other = pick([name for name in PROJECTS if name != project], on.chance.random())
    foreign = pick(PROJECTS[other], on.chance.random())
    named = pick([task["content"], foreign], on.chance.random())
    is_there = any(one["content"] == named for one in on.tasks.values())
    yield (
        f"Is '{named}' a task of project {project}? Answer yes or no.",
        on.plan(answer="yes" if is_there else "no"),
        True,
    )
    first = min(on.tasks.values(), key=lambda one: (one["due_date"], one["content"]))
    yield (
        f"Which task of project {project} is due first? If several are, name the first in the alphabet.",
        on.plan(answer=first["content"]),
        True,
    )
    urgent = [one["content"] for one in on.tasks.values() if one["priority"] >= 3]
    yield f"List the tasks of project {project} with a priority of at least 3.", on.plan(answer=sorted(urgent)), True
    asked = [Call("get_task_duration", {"task_id": number}) for number in on.tasks]
    total = sum(one["minutes"] for one in on.tasks.values())
    yield f"How many minutes do all tasks of project {project} take?", on.plan(*asked, answer=total), True
    late = sum(one["due_date"] < today.isoformat() for one in on.tasks.values())
    yield f"How many tasks of project {project} were due before today?", on.plan(answer=late, dated=True), True

    yield f"Complete {where}.", on.plan(Call("complete_task", {"task_id": on.task_id})), False
    yield f"Delete {where}.", on.plan(Call("delete_task", {"task_id": on.task_id})), False
    favourite = Call("update_project", {"project_id": on.project_id, "is_favorite": True})
    looked, *_, finish = on.plan()
    yield f"Make project {project} a favourite.", (looked, favourite, finish), False
    later = date.fromisoformat(task["due_date"]) + timedelta(days=1 + int(on.chance.random() * 9))
    moved = [Call("update_task", {"task_id": on.task_id, "due_date": later.isoformat()})]
    yield f"Postpone {where} to {later}.", on.plan(*moved), False
    overdue = on.those("complete_task", lambda one: one["due_date"] < today.isoformat())
    yield f"Complete all tasks of project {project} that were due before today.", on.plan(*overdue, dated=True), False
    tomorrow = (today + timedelta(days=1)).isoformat()
    due = on.those("update_task", lambda one: one["due_date"] == today.isoformat(), due_date=tomorrow)
    yield f"Move all tasks of project {project} that are due today to tomorrow.", on.plan(*due, dated=True), False
    needless = on.those("delete_task", lambda one: one["priority"] == 1)
    yield f"Delete all tasks of project {project} with priority 1.", on.plan(*needless), False


@lru_cache(maxsize=1)
def todo_tasks() -> tuple[ToolTask, ...]:
    """Every kind of goal for every account, each about a project and a task of its own."""
    found = []
    for account in range(ACCOUNTS):
        state = make_account(account)
        kinds = len(list(_goals(_List(state, seeded("todo goals")))))
        for kind in range(kinds):
            on = _List(state, seeded(f"todo goal {account} {kind}"))
            goal, plan, is_question = list(_goals(on))[kind]
            changes = any(call.tool.startswith(("update", "complete", "delete")) for call in plan)
            if changes or (is_question and plan[-1].arguments["answer"] != []):
                found.append(ToolTask(goal, state, plan, is_question))
    return tuple(found)


def make_account(number: int) -> dict[str, Any]:
    """One person's projects and tasks."""
    chance = seeded(f"todo account {number}")
    today = date(2024, 1, 1) + timedelta(days=int(chance.random() * 700))
    projects: dict[str, Any] = {}
    tasks: dict[str, Any] = {}
    for order, name in enumerate(shuffled(list(PROJECTS), chance)[: 3 + int(chance.random() * 3)]):
        project_id = _fresh_id(projects, chance)
        projects[project_id] = {"name": name, "order": order, "color": "charcoal", "is_favorite": False}
        for content in shuffled(PROJECTS[name], chance)[: 3 + int(chance.random() * 4)]:
            tasks[_fresh_id(tasks, chance)] = {
                "project_id": project_id,
                "content": content,
                "description": f"Place: {pick(PLACES, chance.random())}. Tips: {pick(TIPS, chance.random())}.",
                "priority": 1 + int(chance.random() * 4),
                "due_date": (today + timedelta(days=int(chance.random() * 7) - 3)).isoformat(),
                "minutes": 5 * (1 + int(chance.random() * 24)),
                "is_completed": False,
            }
    city = pick(CITIES, chance.random())
    return {"today": today.isoformat(), "city": city, "projects": projects, "tasks": tasks}


def _fresh_id(taken: dict[str, Any], chance: random.Random) -> str:
    while True:
        number = str(10_000_000 + int(chance.random() * 90_000_000))
        if number not in taken:
            return number
