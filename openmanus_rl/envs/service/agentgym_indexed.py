"""The routes of AgentGym's servers that name a session `env_idx`: the shop, SQL, search and the tool worlds.

They create with a bare number, start with the first observation alone, and answer a caller's mistake with a status and
a `detail`. AgentGym closes only some of them; here every session can be closed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

from pydantic import BaseModel, create_model
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openmanus_rl.envs.base import Environment, Task
from openmanus_rl.envs.service.agentgym import Handler, WrongType, validate
from openmanus_rl.envs.service.problems import Problem
from openmanus_rl.envs.service.sessions import Sessions
from openmanus_rl.envs.service.wire import json_response, read_body


@dataclass(frozen=True)
class IndexedFamily:
    """How one of these servers speaks."""

    reset_key: str
    """The number in a reset that names the task: item `<world>_<number>`."""
    observation_key: str = "observation"
    """What a step calls the observation."""
    starts_with_pair: bool = False
    """Whether a reset answers `[observation, null]` rather than the observation."""
    step_info: Mapping[str, Any] = field(default_factory=dict)
    """What a step answers beside observation, reward and done."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for worlds made through these routes, where the world takes them."""
    closed_key: str | None = None
    """Under which key a close tells whether there was something to close; None: it answers that alone."""
    questions: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Further GET routes by name, and what each asks the world for."""


INDEXED_FAMILIES: Mapping[str, IndexedFamily] = {
    "webshop": IndexedFamily(
        reset_key="session_id",
        observation_key="state",
        starts_with_pair=True,
        step_info={"info": None},
        closed_key="closed",
        questions={name: methodcaller(name) for name in ("available_actions", "instruction_text", "state")},
    ),
    "searchqa": IndexedFamily(reset_key="id", step_info={"info": None}),
    "sqlgym": IndexedFamily(
        reset_key="item_id",
        observation_key="state",
        starts_with_pair=True,
        step_info={"info": {}},
        options={"max_steps": 1},
    ),
    "todo": IndexedFamily(reset_key="id"),
    "weather": IndexedFamily(reset_key="id"),
}


class IndexBody(BaseModel):
    env_idx: int


class StepBody(IndexBody):
    action: str


class CreateBody(BaseModel):
    id: int = 0


class IndexedRoutes:
    """The handlers of one family over a server's sessions."""

    def __init__(self, sessions: Sessions, family: IndexedFamily) -> None:
        self._sessions = sessions
        self._family = family
        self._options = {} if sessions.refusal(family.options) else family.options
        self._reset_body = create_model("ResetBody", __base__=IndexBody, **{family.reset_key: (int | None, 0)})  # type: ignore[call-overload]

    def routes(self) -> list[Route]:
        posts: dict[str, Handler] = {
            "create": self.create,
            "reset": self.reset,
            "step": self.step,
            "close": self.close,
        }
        gets: dict[str, Handler] = {"observation": self.observation}
        gets |= {name: self._question_route(question) for name, question in self._family.questions.items()}
        return [
            Route(f"/{name}", _answering(handler), methods=[method])
            for method, handlers in (("POST", posts), ("GET", gets))
            for name, handler in handlers.items()
        ]

    async def create(self, request: Request) -> Any:
        """A session with a task, number 0 where none is named."""
        body = await read_body(request.receive)
        number = validate(CreateBody, body).id if body else 0
        session = await self._sessions.open(self._options, self._task(number))
        return session.id

    async def reset(self, request: Request) -> Any:
        body = validate(self._reset_body, await read_body(request.receive))
        async with self._sessions.using(body.env_idx) as session:
            progress = await session.reset(self._task(getattr(body, self._family.reset_key) or 0))
        seen = progress.observation.text
        return [seen, None] if self._family.starts_with_pair else seen

    async def step(self, request: Request) -> Any:
        body = validate(StepBody, await read_body(request.receive))
        async with self._sessions.using(body.env_idx) as session:
            _, result = await session.step(body.action)
        return {
            self._family.observation_key: result.observation.text,
            "reward": result.reward,
            "done": result.done,
            **self._family.step_info,
        }

    async def close(self, request: Request) -> Any:
        """Whether there was something to close."""
        body = validate(IndexBody, await read_body(request.receive))
        closed = await self._sessions.close(body.env_idx)
        return {self._family.closed_key: closed} if self._family.closed_key else closed

    async def observation(self, request: Request) -> Any:
        async with self._sessions.using(_asked_for(request)) as session:
            return session.progress.observation.text

    def _question_route(self, question: Callable[[Environment], Any]) -> Handler:
        async def answer(request: Request) -> Any:
            async with self._sessions.using(_asked_for(request)) as session:
                return await session.ask(question)

        return answer

    def _task(self, number: int) -> Task:
        name = self._sessions.world.name
        return Task(name, f"{name}_{number}")


def indexed_routes(sessions: Sessions) -> list[Route]:
    """The routes of the world that is served, if AgentGym's server of it names sessions `env_idx`."""
    family = INDEXED_FAMILIES.get(sessions.world.name)
    return IndexedRoutes(sessions, family).routes() if family else []


def _asked_for(request: Request) -> int:
    return validate(IndexBody, dict(request.query_params), "query").env_idx


def _answering(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return json_response(await handler(request))
        except WrongType as error:
            return json_response({"detail": error.flaws}, 422)
        except Problem as problem:
            return json_response({"detail": problem.detail}, problem.status, problem.headers)

    return answer
