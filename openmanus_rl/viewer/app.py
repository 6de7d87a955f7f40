"""The page's routes. All of them read; what a run's files are not, is told as text."""

import asyncio
import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from openmanus_rl.errors import UserError
from openmanus_rl.viewer.compare import compare
from openmanus_rl.viewer.guards import Guard
from openmanus_rl.viewer.jsons import to_json
from openmanus_rl.viewer.workspace import Workspace

log = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"
LOOK_EVERY = 0.5
"""Seconds between two looks at the files of a run that someone watches."""
MOST_POINTS = 4000
MOST_COMPARED = 8


def make_app(workspace: Workspace, token: str | None, is_ending: Callable[[], bool]) -> Guard:
    """The application for a directory of runs; a token makes it ask for one. News ends when the server does."""

    def runs(request: Request) -> Any:
        briefs = [_brief(workspace, name) for name in workspace.names()]
        return {"root": str(workspace.root), "one_run": workspace.is_one_run, "runs": briefs}

    def overview(request: Request) -> Any:
        return workspace.run(request.path_params["run"]).overview()

    def chart(request: Request) -> Any:
        query = request.query_params
        points = min(_count(query.get("points"), 1000), MOST_POINTS)
        return workspace.run(request.path_params["run"]).chart(
            query.getlist("name"),
            max(points, 2),
            _number(query.get("from"), -math.inf),
            _number(query.get("to"), math.inf),
        )

    def episodes(request: Request) -> Any:
        words = dict(request.query_params)
        offset, limit = (_count(words.pop(name, None), 0) for name in ("offset", "limit"))
        return workspace.run(request.path_params["run"]).list_episodes(words, offset, limit or 100)

    def read_ahead(request: Request) -> Any:
        return workspace.run(request.path_params["run"]).read_ahead(dict(request.query_params))

    def episode(request: Request) -> Any:
        where = request.path_params
        return workspace.run(where["run"]).episode(where["file"], where["number"])

    def group(request: Request) -> Any:
        where = request.path_params
        return workspace.run(where["run"]).group(where["file"], where["group"])

    def compared(request: Request) -> Any:
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_COMPARED]
        return compare([workspace.run(name) for name in names])

    async def changes(request: Request) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("run")))[:MOST_COMPARED]
        return StreamingResponse(_changes(request, workspace, names, is_ending), media_type="text/event-stream")

    def index(request: Request) -> Response:
        return FileResponse(PAGE / "index.html")

    return Guard(
        Starlette(
            routes=[
                Route("/", index),
                Route("/api/runs", _answered(runs)),
                Route("/api/runs/{run}", _answered(overview)),
                Route("/api/runs/{run}/metrics", _answered(chart)),
                Route("/api/runs/{run}/episodes", _answered(episodes)),
                Route("/api/runs/{run}/texts", _answered(read_ahead)),
                Route("/api/runs/{run}/episodes/{file}/{number:int}", _answered(episode)),
                Route("/api/runs/{run}/groups/{file}/{group:int}", _answered(group)),
                Route("/api/compare", _answered(compared)),
                Route("/api/changes", changes),
                Mount("/page", StaticFiles(directory=PAGE)),
            ]
        ),
        token,
    )


def _answered(answer: Callable[[Request], Any]) -> Callable[[Request], Response]:
    """A plain function, which runs in a thread, as a route that answers JSON.

    A user's mistake is a 404 with words; one of ours, or a directory as nobody thought of, a 500 with words and a log.
    """

    def endpoint(request: Request) -> Response:
        try:
            return Response(to_json(answer(request)), media_type="application/json")
        except UserError as error:
            return Response(to_json({"error": str(error)}), 404, media_type="application/json")
        except Exception as error:
            log.exception("%s cannot be answered", request.url.path)
            return Response(to_json({"error": _told(error)}), 500, media_type="application/json")

    return endpoint


def _brief(workspace: Workspace, name: str) -> dict[str, Any]:
    """A line of the list; a run that cannot be read says why in its own, and the others are shown."""
    try:
        return workspace.run(name).brief()
    except UserError as error:
        return {"name": name, "status": "unreadable", "error": str(error)}
    except Exception as error:
        log.exception("the run %s cannot be read", name)
        return {"name": name, "status": "unreadable", "error": _told(error)}


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _count(text: str | None, default: int) -> int:
    number = _number(text, default)
    if not math.isfinite(number):
        raise UserError(f"{text!r} is not a whole number.")
    return max(0, int(number))


def _number(text: str | None, default: float) -> float:
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError as error:
        raise UserError(f"{text!r} is not a number.") from error
    if math.isnan(number):
        raise UserError(f"{text!r} is not a number.")
    return number


async def _changes(
    request: Request, workspace: Workspace, names: list[str], is_ending: Callable[[], bool]
) -> AsyncIterator[str]:
    """The state of the named runs, or of the list of runs, whenever it is another than before."""
    before = None
    while not is_ending() and not await request.is_disconnected():
        now = await run_in_threadpool(_state, workspace, names)
        yield ": still here\n\n" if now == before else f"data: {now}\n\n"
        before = now
        await asyncio.sleep(LOOK_EVERY)


def _state(workspace: Workspace, names: list[str]) -> str:
    try:
        if not names:
            return json.dumps({"runs": workspace.names()})
        return json.dumps({name: workspace.run(name).state() for name in names})
    except UserError as error:
        return json.dumps({"error": str(error)})
    except Exception as error:  # noqa: BLE001 - asked twice a second; the page asks for the run itself, which is logged
        return json.dumps({"error": _told(error)})
