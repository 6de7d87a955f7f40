"""The base of tool worlds: a service with tools, tasks with a plan that does them, and the check of the end state.

A world is a `ToolService` (its data and its tools) and a list of `ToolTask`s. Success is not read off the calls: the
data must end as they end when the plan is carried out, and the answer, where one is asked for, must be the right one.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

from openmanus_rl.envs.base import (
    ActionGrammar,
    Environment,
    EpisodeOver,
    Isolation,
    Observation,
    Split,
    StepResult,
    Task,
    split_of,
    stable_hash,
)
from openmanus_rl.envs.items import in_doubling_steps, item_number, pick
from openmanus_rl.envs.text import normal_answer
from openmanus_rl.envs.tools.calls import GRAMMAR, Call, read_call
from openmanus_rl.envs.tools.tool import Answer, ToolError, call_tool, tool, tools_of
from openmanus_rl.errors import UserError


class ToolService:
    """Data and the tools that read and change them. All data are in `state`, as plain values."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state
        self.answer: Answer | None = None
        """What the agent finished with."""

    @tool("end the task; the answer to a question, or 'done'")
    def finish(self, answer: Answer) -> Answer:
        self.answer = answer
        return answer

    @tool("the names of all tools")
    def check_valid_actions(self) -> list[str]:
        return list(tools_of(type(self)))

    def possible_calls(self) -> list[Call]:
        """Calls that the data allow: what chance chooses from."""
        return [Call(name, {}) for name, one in tools_of(type(self)).items() if not one.parameters]


@dataclass(frozen=True)
class ToolTask:
    """Something to do with a service: what it starts with, and calls that do it, the last of which is `finish`."""

    goal: str
    state: Mapping[str, Any]
    plan: tuple[Call, ...]
    is_question: bool
    """Whether the answer counts; else it is the end state alone."""

    @property
    def content(self) -> str:
        return f"{self.goal} {json.dumps(self.state, sort_keys=True)}"

    @property
    def right_answer(self) -> Answer:
        answer: Answer = self.plan[-1].arguments["answer"]
        return answer


class ToolWorld(Environment):
    """Do what the goal says by calling tools, then call `finish`.

    An action is `tool_name with Action Input: {"parameter": "value"}`. What is seen is what the tool answers. `finish`
    ends the episode and pays 1 if the data are as they must be and the answer, where a question was asked, is right.
    After `max_steps` turns the episode is cut. Option: `max_steps`.
    """

    grammar: ClassVar[ActionGrammar] = GRAMMAR
    success_rule: ClassVar[str] = "after finish, the data are as the goal wants them, and the answer is right"
    score_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    isolation: ClassVar[Isolation] = "inline"
    service: ClassVar[type[ToolService]]

    def __init__(self, max_steps: int = 20) -> None:
        if max_steps < 1:
            raise UserError(f"{self.name}: max_steps is {max_steps}", "An episode needs at least one turn.")
        self.max_steps = max_steps
        self._item_id = ""
        self._task: ToolTask | None = None
        self._service = self.service({})
        self._called: list[str] = []
        self._turns = 0
        self._over = False

    @classmethod
    @abstractmethod
    def tasks(cls) -> Sequence[ToolTask]:
        """All tasks, in an order that never changes."""

    def instructions(self) -> str:
        listed = "\n".join(one.describe() for one in tools_of(self.service).values())
        return (
            f"Reach the goal by calling tools.\n{listed}\nThe input is a JSON object with all parameters. "
            f"Action, for example: {self.grammar.describe()}"
        )

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        """One item for each task of the split that can be done in `max_steps`."""
        world = cls(**options)
        for number, task in enumerate(cls.tasks()):
            if split_of(task.content) == split and len(task.plan) <= world.max_steps:
                yield f"{cls.name}_{number}"

    def reset(self, task: Task) -> Observation:
        self._begin(task.item_id)
        return Observation(f"Goal: {self._asked.goal}\nGive one action.")

    def step(self, action: str) -> StepResult:
        task = self._asked
        if self._over:
            raise EpisodeOver(f"{self._item_id} is over; call reset")
        self._turns += 1
        seen, refused = self._act(action)
        finished = self._service.answer is not None
        success = finished and self._is_done(task)
        truncated = not finished and self._turns >= self.max_steps
        self._over = finished or truncated
        text = seen if self._over else f"{seen}\nGive one action."
        info = {"invalid": refused} if refused else {}
        return StepResult(Observation(text), float(success), finished, truncated, success, info)

    def state_key(self) -> str:
        """The goal and the data; turns are left out."""
        return f"{stable_hash(f'{self._asked.goal} {json.dumps(self._service.state, sort_keys=True)}'):016x}"

    def difficulty(self) -> str:
        """How many calls do the task, the last one included: 1 to 2, 3 to 4, 5 to 8, …"""
        return in_doubling_steps("calls", len(self._asked.plan))

    def expert_action(self) -> str:
        """The first call of the plan that was not made yet."""
        made = set(self._called)
        calls = [call.write() for call in self._asked.plan]
        return next((call for call in calls if call not in made), calls[-1])

    def random_action(self, uniform: float) -> str:
        """Any call that the data allow."""
        assert self._asked
        return pick(self._service.possible_calls(), uniform).write()

    def snapshot(self) -> dict[str, Any]:
        return {
            "item_id": self._item_id,
            "state": deepcopy(self._service.state),
            "answer": self._service.answer,
            "called": list(self._called),
            "turns": self._turns,
            "over": self._over,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self._begin(snapshot["item_id"])
        self._service = self.service(deepcopy(snapshot["state"]))
        self._service.answer = snapshot["answer"]
        self._called, self._turns, self._over = list(snapshot["called"]), snapshot["turns"], snapshot["over"]

    def render(self) -> str:
        called = "\n".join(self._called)
        return f"Goal: {self._asked.goal}\nTurn {self._turns} of {self.max_steps}.\n{called}".rstrip()

    @property
    def _asked(self) -> ToolTask:
        if self._task is None:
            raise EpisodeOver(f"{self.name}: no task has begun; call reset")
        return self._task

    def _begin(self, item_id: str) -> None:
        number, tasks = item_number(self.name, item_id), self.tasks()
        if number >= len(tasks):
            raise UserError(
                f"{item_id} is not a task of this world", f"It has {self.name}_0 to {self.name}_{len(tasks) - 1}."
            )
        self._item_id, self._task = item_id, tasks[number]
        self._service = self.service(deepcopy(dict(self._task.state)))
        self._called, self._turns, self._over = [], 0, False

    def _act(self, action: str) -> tuple[str, str | None]:
        """What is seen, and why if nothing could be called."""
        try:
            call = read_call(action)
            if call is None:
                refused = f"write it as, for example, {self.grammar.describe()}"
                return f"This is no action: {refused}", refused
            answer = call_tool(self._service, call.tool, call.arguments)
        except ToolError as error:
            return f"Observation: ERROR: {error}.", str(error)
        self._called.append(call.write())
        return f"Observation: {json.dumps(answer)}", None

    def _is_done(self, task: ToolTask) -> bool:
        """Whether the data end as the plan would end them, and the answer is right where it counts."""
        wanted = self.service(deepcopy(dict(task.state)))
        for call in task.plan:
            call_tool(wanted, call.tool, call.arguments)
        given = self._service.answer
        answered = not task.is_question or (given is not None and same_answer(given, task.right_answer))
        return answered and self._service.state == wanted.state


def same_answer(given: Answer, right: Answer) -> bool:
    """Numbers by value, texts but for case, punctuation and articles, lists in whatever order."""
    if isinstance(right, list):
        listed = given if isinstance(given, list) else str(given).split(",")
        return sorted(normal_answer(str(one)) for one in listed) == sorted(normal_answer(one) for one in right)
    if isinstance(right, int | float):
        try:
            return abs(float(given) - right) <= 1e-6 * max(1.0, abs(right))  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            return False
    return normal_answer(str(given)) == normal_answer(right)
