"""AgentGym's routes, so that an `agentenv` client plays our worlds unchanged: a thin layer over the same sessions.

What differs between families is in `FAMILIES`. A caller's mistake is answered as AgentGym answers it: status 200 with
an `error`, or 422 where a value has the wrong type. Only a full server says so with its proper status.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError, create_model
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openmanus_rl.envs.base import Environment, Task
from openmanus_rl.envs.service.problems import Problem, out_of_order
from openmanus_rl.envs.service.sessions import Session, Sessions
from openmanus_rl.envs.service.wire import encode, json_response, read_body


@dataclass(frozen=True)
class Family:
    """How one of AgentGym's servers speaks."""

    reset_key: str
    """The number in a reset that names the task: item `<world>_<number>`."""
    reset_answer: tuple[str, ...]
    prefix: str = ""
    create_answer: tuple[str, ...] = ("id",)
    starts_on_create: bool = False
    """Whether a session has a task, number 0, before its first reset."""
    silent_when_over: bool = False
    """Whether GET routes answer with an error once the episode is over."""
    reset_fields: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """Further fields of a reset: type and default."""
    step_answer: tuple[str, ...] = ("observation", "reward", "done")
    observation_answer: tuple[str, ...] = ()
    """What GET /observation tells; none of these: the observation itself."""
    goal: Callable[[Any], str] | None = None
    """What such an observation begins with after a step, which tells it no more."""
    detail_answer: tuple[str, ...] = ()
    """What GET /detail tells; none of these: there is none, or `lists` has it."""
    own_tasks: bool = False
    """Whether a caller may bring a task: `commands` and `goal` in a create."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for worlds made through these routes, where the world takes them."""
    tells: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Further keys of answers, and what each asks the world for."""
    lists: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Further GET routes by name, and what each asks the world for."""


FAMILIES: Mapping[str, Family] = {
    "textcraft": Family(
        reset_key="data_idx",
        reset_answer=("id", "observation", "done", "reward"),
        create_answer=("id", "observation", "done", "reward"),
        starts_on_create=True,
        options={"wording": "agentgym"},
        detail_answer=("observation", "done", "reward", "deleted"),
        own_tasks=True,
    ),
    "maze": Family(
        reset_key="game",
        reset_answer=("observation",),
        prefix="/maze",
        options={"wording": "agentgym"},
    ),
    "wordle": Family(
        reset_key="seed",
        reset_answer=("id", "observation"),
        prefix="/wordle",
        starts_on_create=True,
        options={"echo": False},
        lists={"filtered_vocab": methodcaller("filtered_vocab")},
    ),
    "babyai": Family(
        reset_key="data_idx",
        reset_answer=("observation", "reward", "score", "deleted", "done"),
        step_answer=("observation", "reward", "score", "done"),
        observation_answer=("observation", "reward", "score", "done", "deleted"),
        goal=attrgetter("goal"),
        tells={"score": attrgetter("score")},
    ),
    "alfworld": Family(
        reset_key="game",
        reset_fields={"world_type": (Literal["Text"], "Text")},
        reset_answer=("id", "observation", "available_actions", "task_type"),
        step_answer=("observation", "reward", "available_actions", "done"),
        silent_when_over=True,
        tells={"available_actions": methodcaller("available_actions"), "task_type": attrgetter("task_type")},
        lists={"available_actions": methodcaller("available_actions")},
    ),
    "sciworld": Family(
        reset_key="data_idx",
        reset_answer=(
            "task_name",
            "var_num",
            "task_description",
            "observation",
            "reward",
            "score",
            "deleted",
            "done",
        ),
        step_answer=("observation", "reward", "score", "done"),
        silent_when_over=True,
        tells={
            "task_name": attrgetter("task_name"),
            "var_num": attrgetter("variation"),
            "task_description": attrgetter("task_description"),
            "score": attrgetter("score"),
        },
        lists={
            "action_hint": methodcaller("action_hint"),
            "goals": methodcaller("goals"),
            "detail": methodcaller("detail"),
            "task_description": attrgetter("task_description"),
        },
    ),
}


class IdBody(BaseModel):
    id: int


class StepBody(IdBody):
    action: str


M = TypeVar("M", bound=BaseModel)
Handler = Callable[[Request], Awaitable[Any]]


class AgentGymRoutes:
    """The handlers of one family over a server's sessions."""

    def __init__(self, sessions: Sessions, family: Family) -> None:
        self._sessions = sessions
        self._family = family
        self._options = {} if sessions.refusal(family.options) else family.options
        self._tells_more = family.step_answer != Family.step_answer
        fields = {family.reset_key: (int, 0), **family.reset_fields}
        self._reset_body = create_model("ResetBody", __base__=IdBody, **fields)  # type: ignore[call-overload]

    def routes(self) -> list[Route]:
        prefix = self._family.prefix
        posts: dict[str, Handler] = {
            "reset": self.reset,
            "create": self.create,
            "close": self.close,
        }
        gets: dict[str, Handler] = {"observation": self.observation}
        if self._family.detail_answer:
            gets["detail"] = self.detail
        gets |= {name: self._list_route(question) for name, question in self._family.lists.items()}
        return [
            Route(f"{prefix}/{name}", _answering(handler), methods=[method])
            for method, handlers in (("POST", posts), ("GET", gets))
            for name, handler in handlers.items()
        ]

    async def create(self, request: Request) -> Any:
        own = await self._own_task(request)
        task = self._task(0) if self._family.starts_on_create and own is None else None
        session = await self._sessions.open(self._options, task)
        if own is not None:
            await self._start_own(session, own)
        return await self._told(session, self._family.create_answer)

    async def reset(self, request: Request) -> Any:
        body = validate(self._reset_body, await read_body(request.receive))
        async with self._sessions.using(body.id) as session:
            item_id = await session.ask(methodcaller("item_of_number", getattr(body, self._family.reset_key)))
            await session.reset(Task(self._sessions.world.name, item_id))
            return await self._told(session, self._family.reset_answer)

    @property
    def step_path(self) -> str:
        return f"{self._family.prefix}/step"

    async def step(self, path: str, body: bytes) -> bytes:
        """POST /step, in the lane for steps."""
        step = validate(StepBody, body)
        async with self._sessions.using(step.id) as session:
            _, result = await session.step(step.action)
            told = {"observation": result.observation.text, "reward": result.reward, "done": result.done}
            if self._tells_more:
                told = await self._answer(session, told, self._family.step_answer)
            return encode(told)

    async def close(self, request: Request) -> Any:
        """True if there was something to close."""
        body = validate(IdBody, await read_body(request.receive))
        return await self._sessions.close(body.id)

    async def observation(self, request: Request) -> Any:
        async with self._sessions.using(_query_id(request)) as session:
            self._refuse_when_over(session)
            if not self._family.observation_answer:
                return session.progress.observation.text
            told = await self._told(session, self._family.observation_answer)
            if self._family.goal is not None and session.progress.turn:
                told["observation"] = f"{await session.ask(self._family.goal)}\n{told['observation']}"
            return told

    async def detail(self, request: Request) -> Any:
        async with self._sessions.using(_query_id(request)) as session:
            return await self._told(session, self._family.detail_answer)

    async def _own_task(self, request: Request) -> tuple[str, str] | None:
        """The commands and the goal that a caller brings, if it does."""
        body = await read_body(request.receive)
        wanted = validate(_CreateBody, body) if body else _CreateBody()
        if wanted.commands is None and wanted.goal is None:
            return None
        if not self._family.own_tasks:
            raise Problem(422, "Not served", "this world plays its own tasks: commands and goal cannot be given.")
        if wanted.commands is None or wanted.goal is None:
            raise Problem(422, "Not a valid request", "commands and goal belong together: give both, or neither.")
        return wanted.commands, wanted.goal

    async def _start_own(self, opened: Session, own: tuple[str, str]) -> None:
        async with self._sessions.using(opened.id) as session:
            try:
                item_id = await session.ask(methodcaller("own_item", *own))
                await session.reset(Task(self._sessions.world.name, item_id))
            except Problem:
                await session.close()
                raise

    def _list_route(self, question: Callable[[Environment], Any]) -> Handler:
        async def answer(request: Request) -> Any:
            async with self._sessions.using(_query_id(request)) as session:
                self._refuse_when_over(session)
                return await session.ask(question)

        return answer

    async def _told(self, session: Session, keys: tuple[str, ...]) -> dict[str, Any]:
        """What the family tells of a session: how it started, or how its last step went."""
        told: dict[str, Any] = {"id": session.id, "done": False, "reward": 0.0, "deleted": False}
        if "observation" in keys:
            told["observation"] = session.progress.observation.text
            result = session.progress.result
            if result is not None:
                told |= {"done": result.done, "reward": result.reward}
        return await self._answer(session, told, keys)

    async def _answer(self, session: Session, told: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
        """The keys of an answer: what is told already, and the rest asked of the world at once."""
        questions = {key: self._family.tells[key] for key in keys if key not in told}
        if questions:
            told = {**told, **await session.ask(partial(_ask_all, questions))}
        return {key: told[key] for key in keys}

    def _refuse_when_over(self, session: Session) -> None:
        if self._family.silent_when_over and session.progress.done:
            raise out_of_order("the episode is over; reset the session to start another.")

    def _task(self, number: int) -> Task:
        name = self._sessions.world.name
        return Task(name, f"{name}_{number}")


def agentgym_routes(sessions: Sessions) -> AgentGymRoutes | None:
    """The AgentGym routes of the world that is served; none if AgentGym has no such family."""
    family = FAMILIES.get(sessions.world.name)
    return AgentGymRoutes(sessions, family) if family else None


def _ask_all(questions: Mapping[str, Callable[[Any], Any]], world: Environment) -> dict[str, Any]:
    return {key: question(world) for key, question in questions.items()}


class WrongType(Problem):
    """A value that cannot be read as what the route wants: 422 with the flaws listed."""

    def __init__(self, flaws: list[dict[str, Any]]) -> None:
        super().__init__(422, "Not a valid request", "a value has the wrong type")
        self.flaws = flaws


def complaint(problem: Problem) -> Response:
    """A problem as AgentGym tells it."""
    if isinstance(problem, WrongType):
        return json_response({"detail": problem.flaws}, 422)
    return json_response({"error": problem.detail}, 503 if problem.status == 503 else 200, problem.headers)


def _answering(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return json_response(await handler(request))
        except Problem as problem:
            return complaint(problem)

    return answer


class _CreateBody(BaseModel):
    commands: str | None = None
    goal: str | None = None


def _query_id(request: Request) -> int:
    return validate(IdBody, dict(request.query_params), "query").id


def validate(model: type[M], given: bytes | dict[str, Any], place: str = "body") -> M:
    try:
        if isinstance(given, bytes):
            return model.model_validate_json(given)
        return model.model_validate(given)
    except ValidationError as error:
        flaws = error.errors(include_url=False, include_context=False, include_input=False)
        raise WrongType([{**flaw, "loc": [place, *flaw["loc"]]} for flaw in flaws]) from error
