"""The endpoint: `/v1/chat/completions`, and the same below the name of an episode, where calls are recorded."""

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from openmanus_rl.agent.gateway.openai_api import ChatRequest, Refused, answer, as_stream, read_request
from openmanus_rl.agent.gateway.recording import Call, Recording
from openmanus_rl.envs.access import listen, url_of
from openmanus_rl.envs.base import stable_hash
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, FinishReason, InferenceEngine, SamplingParams
from openmanus_rl.models.chat import ChatRenderer

ANSWER_SECONDS = 600.0
"""How long a call may take that belongs to no episode."""


@dataclass
class Line:
    """An episode that is being recorded, and how it is sampled."""

    recording: Recording
    temperature: float
    seed: int
    session: str
    deadline: float
    error: Exception | None = None
    """What the engine raised, for whoever plays the episode."""
    sessions: list[str] = field(default_factory=list)
    """Of the engine: one for each conversation, and for each call that is made beside another from the same point."""
    busy: set[str] = field(default_factory=set)
    calls: Iterator[int] = field(default_factory=itertools.count)

    def session_for(self, call: Call) -> str:
        """The session that the call continues, unless another call is under way in it; else a fresh one."""
        if call.session is not None and call.session not in self.busy:
            return call.session
        self.sessions.append(f"{self.session}.{len(self.sessions)}")
        return self.sessions[-1]


class Gateway:
    """Serves one engine. A call below `/<episode>/v1` is recorded; one below `/v1` is answered and forgotten.

    What is recorded trains, so it is sampled at the episode's own temperature and from its own seeds, whatever the
    client asks for.
    """

    def __init__(
        self, engine: InferenceEngine, renderer: ChatRenderer, *, model: str, max_context: int, max_tokens: int
    ) -> None:
        self.engine = engine
        self.renderer = renderer
        self.model = model
        self.max_context = max_context
        self.max_tokens = max_tokens
        self._lines: dict[str, Line] = {}
        routes = [
            Route(f"{prefix}/v1/{path}", handler, methods=[method])
            for prefix in ("", "/{episode}")
            for path, handler, method in (("chat/completions", self._chat, "POST"), ("models", self._models, "GET"))
        ]
        self.app = Starlette(routes=routes, exception_handlers={Refused: _tell})

    def open(self, line: Line) -> str:
        """Start to record; the name of the episode, which nobody guesses."""
        name = secrets.token_urlsafe(12)
        self._lines[name] = line
        return name

    def close(self, name: str) -> None:
        """End a recording: further calls are refused."""
        for session in self._lines.pop(name).sessions:
            self.engine.release(session)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve on the running event loop, which must be the engine's; the URL."""
        listener = listen(host, port, "--port")
        url = url_of(listener)
        server = _Server(uvicorn.Config(self.app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        running = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            while not server.started and not running.done():
                await asyncio.sleep(0.005)
            yield url
        finally:
            server.should_exit = True
            await running

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": self.model, "object": "model"}]})

    async def _chat(self, request: Request) -> Response:
        name = request.path_params.get("episode")
        if name is not None and name not in self._lines:
            raise Refused(404, "there is no such episode, or it has ended", "episode_over")
        try:
            body = await request.json()
        except ValueError as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        asked = read_request(body)
        line = self._anonymous(asked) if name is None else self._lines[name]
        try:
            call = line.recording.call(asked.messages)
        except UserError as error:  # roles that the model's template does not know
            raise Refused(400, str(error)) from error
        session = line.session_for(call)
        began = time.monotonic()
        completion = await self._sample(line, call, session, asked, recorded=name is not None)
        text = line.recording.note(call, completion, session, time.monotonic() - began)
        whole = answer(
            self.model,
            secrets.token_hex(8),
            text,
            completion.finish_reason,
            len(call.ids),
            len(completion.token_ids),
        )
        return (
            StreamingResponse(as_stream(whole), media_type="text/event-stream") if asked.stream else JSONResponse(whole)
        )

    async def _sample(self, line: Line, call: Call, session: str, asked: ChatRequest, recorded: bool) -> Completion:
        room = self.max_context - len(call.ids)
        if room < 1:
            raise Refused(
                400, f"{len(call.ids)} tokens do not fit a context of {self.max_context}", "context_length_exceeded"
            )
        sampling = SamplingParams(
            max_tokens=max(1, min(asked.max_tokens or self.max_tokens, self.max_tokens, room)),
            temperature=line.temperature,
            top_p=1.0 if recorded or asked.top_p is None else asked.top_p,
            stop_token_ids=self.renderer.stop_token_ids,
        )
        line.busy.add(session)
        try:
            completion = await self.engine.generate(
                call.ids,
                sampling,
                seed=stable_hash(f"{line.seed}/{next(line.calls)}") >> 1,
                session=session,
                deadline=line.deadline,
            )
        except Exception as error:
            line.error = error
            raise Refused(500, f"the engine failed: {type(error).__name__}: {error}", "engine_failure") from error
        finally:
            line.busy.discard(session)
            if not recorded:
                self.engine.release(session)
        if completion.finish_reason in (FinishReason.ABORTED, FinishReason.DEADLINE):
            raise Refused(503, f"the answer ended by {completion.finish_reason}", "engine_failure")
        return completion

    def _anonymous(self, asked: ChatRequest) -> Line:
        seed = asked.seed if asked.seed is not None else secrets.randbits(62)
        temperature = 1.0 if asked.temperature is None else asked.temperature
        session = f"call-{secrets.token_hex(8)}"
        return Line(Recording(self.renderer), temperature, seed, session, time.monotonic() + ANSWER_SECONDS)


class _Server(uvicorn.Server):
    """Leaves signals to the program that it is part of."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _tell(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse(error.body, error.status)
