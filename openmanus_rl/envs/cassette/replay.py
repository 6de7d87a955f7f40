"""Playing back: a server that answers as the recorded one did, without the world, and tells where a player deviates.

Sessions come in any order. One that starts as a recorded session did follows it; where several started alike, it
follows those that go on as it does. So the same players get the same answers, whoever comes first.
"""

import difflib
import json
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from openmanus_rl.envs.cassette.exchange import Exchange, decoded
from openmanus_rl.envs.cassette.record import UNRECORDED

log = logging.getLogger(__name__)

Tape = Sequence[Exchange]
"""The exchanges of one recorded session."""


class Deviation(Exception):
    """The player does not do what was recorded; the message names the turn and shows the difference."""


@dataclass
class _Session:
    """A player's session and the recorded ones it may be."""

    id: int
    tapes: list[Tape]
    position: int = 1
    """In the tapes: what comes next."""
    turn: int = 0
    """Steps taken."""
    last: Exchange | None = field(default=None)


class ReplayServer:
    """Answers from a cassette. `deviations` has what did not fit, in words."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self.deviations: list[str] = []
        self._tapes, self._loose = _sorted_out(exchanges)
        self._opened: Counter[str] = Counter()
        self._sessions: dict[int, _Session] = {}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health, methods=["GET"]),
                Route("/v1/step_batch", self._batch, methods=["POST"]),
                Route("/{path:path}", self._handle, methods=["GET", "POST", "DELETE"]),
            ]
        )

    def answer(self, asked: Exchange) -> Exchange:
        """What was recorded; `Deviation` if nothing of the kind was."""
        if asked.opens:
            return self._open(asked)
        if asked.session is None:
            return self._loosely(asked)
        session = self._sessions.get(asked.session)
        if session is None:
            raise Deviation(f"{asked.method} {asked.path} speaks of a session that this replay did not open")
        following = _next(session, asked)
        if not following and asked.steps and session.last is not None and asked.question == session.last.question:
            return session.last  # a lost answer that is asked for again
        if not following:
            raise Deviation(_told(session, asked))
        recorded = following[0][session.position]
        heard = recorded.answered_to(session.id)
        session.tapes = [tape for tape in following if tape[session.position].answered_to(session.id) == heard]
        session.position += 1
        session.turn += asked.steps
        session.last = Exchange(asked.method, asked.url, asked.request_json, recorded.status, heard)
        return session.last

    def _open(self, asked: Exchange) -> Exchange:
        key = asked.question.line()
        tapes = self._tapes.get(key, [])
        self._opened[key] += 1
        if self._opened[key] > len(tapes):
            times = f"{len(tapes)} times" if tapes else "never"
            raise Deviation(
                f"session {len(self._sessions) + 1} starts with {_short(asked)}; that was recorded {times}, "
                f"and is asked for {_ordinal(self._opened[key])}"
            )
        recorded = tapes[self._opened[key] - 1][0]
        if recorded.session is None:  # it was refused
            return recorded
        session = _Session(secrets.randbits(53), [tape for tape in tapes if tape[0].session is not None])
        self._sessions[session.id] = session
        recorded = session.tapes[0][0]
        return Exchange(asked.method, asked.url, asked.request_json, recorded.status, recorded.answered_to(session.id))

    def _loosely(self, asked: Exchange) -> Exchange:
        """What belongs to no session is answered in the recorded order, and then as the last time."""
        answers = self._loose.get(asked.question.line())
        if not answers:
            raise Deviation(f"{_short(asked)} was never recorded")
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def _handle(self, request: Request) -> Response:
        if request.url.path in UNRECORDED:
            return JSONResponse({"title": "Not Found", "status": 404, "detail": "A cassette tells of sessions."}, 404)
        content = decoded(await request.body())
        url = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        answer = self._played(Exchange(request.method, url, content))
        return Response(status_code=204) if answer.status == 204 else JSONResponse(answer.response, answer.status)

    async def _batch(self, request: Request) -> Response:
        try:
            steps = [(step.pop("session_id"), step) for step in decoded(await request.body())["steps"]]
        except (KeyError, TypeError, AttributeError):  # a batch that is none was recorded as it came
            return await self._handle(request)

        async def lines() -> AsyncIterator[bytes]:
            for index, (session, body) in enumerate(steps):
                answer = self._played(Exchange("POST", f"/v1/sessions/{session}/step", body))
                yield json.dumps({"index": index, "status": answer.status, "answer": answer.response}).encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "sessions": len(self._sessions), "deviations": len(self.deviations)})

    def _played(self, asked: Exchange) -> Exchange:
        try:
            return self.answer(asked)
        except Deviation as deviation:
            log.error("%s", deviation)
            self.deviations.append(str(deviation))
            problem = {"title": "Not as recorded", "status": 409, "detail": str(deviation)}
            return Exchange(asked.method, asked.url, asked.request_json, 409, problem)


def _sorted_out(exchanges: Iterable[Exchange]) -> tuple[dict[str, list[Tape]], dict[str, list[Exchange]]]:
    """The sessions by how they start, and what belongs to none."""
    tapes: dict[str, list[Tape]] = defaultdict(list)
    loose: dict[str, list[Exchange]] = defaultdict(list)
    running: dict[int, list[Exchange]] = {}
    for exchange in exchanges:
        session = exchange.session
        if exchange.opens:
            tape = [exchange]
            tapes[exchange.question.line()].append(tape)
            if session is not None:
                running[session] = tape
        elif session in running:
            tape = running[session]
            repeated = exchange.steps and "turn" in (exchange.request_json or {})
            if not (repeated and exchange.question == tape[-1].question):
                tape.append(exchange)
        else:
            loose[exchange.question.line()].append(exchange)
    return tapes, loose


def _next(session: _Session, asked: Exchange) -> list[Tape]:
    """The recorded sessions, of those it may be, that go on like this."""
    place = session.position
    return [tape for tape in session.tapes if len(tape) > place and tape[place].question == asked.question]


def _told(session: _Session, asked: Exchange) -> str:
    tape = session.tapes[0]
    start = tape[0].request_json or next((each.request_json for each in tape[1:2]), None)
    where = f"turn {session.turn + 1}" if asked.steps else f"{asked.method} {asked.path} after turn {session.turn}"
    head = f"{where} of the session that started with {json.dumps(start, ensure_ascii=False)}: "
    if len(tape) <= session.position:
        return f"{head}the recorded session ended before, and now comes {_short(asked)}"
    difference = difflib.unified_diff(
        _pretty(tape[session.position].question), _pretty(asked.question), "recorded", "asked", lineterm="", n=9
    )
    return head + "not as recorded\n" + "\n".join(difference)


def _pretty(question: Exchange) -> list[str]:
    body = json.dumps(question.request_json, ensure_ascii=False, indent=1)
    return [f"{question.method} {question.url}", *body.splitlines()]


def _short(asked: Exchange) -> str:
    text = f"{asked.method} {asked.path} {json.dumps(asked.request_json, ensure_ascii=False)}"
    return text if len(text) <= 300 else f"{text[:297]}…"


def _ordinal(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
