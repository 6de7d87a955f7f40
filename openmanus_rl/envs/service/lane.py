"""A lane of its own for steps, the requests that come most: no routing table, no middleware, no request objects.

What a step means is said once, by the routes it belongs to; here is only how its bytes come in and go out.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from openmanus_rl.envs.service.problems import Problem
from openmanus_rl.envs.service.wire import problem_response, read_body

Step = Callable[[str, bytes], Awaitable[bytes]]
"""Path and body of a step to the JSON of its answer, or a `Problem`."""

Complaint = Callable[[Problem], Response]


class StepLane:
    """Answers POSTs whose path ends with `/step` by themselves and passes all else on."""

    def __init__(self, app: ASGIApp, exact: Mapping[str, tuple[Step, Complaint]], native: Step) -> None:
        """`exact` are the steps of known paths; any other below /v1/ is `native`."""
        self._app = app
        self._exact = exact
        self._native = (native, problem_response)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        lane = self._exact.get(path)
        if lane is None and path.endswith("/step") and path.startswith("/v1/sessions/"):
            lane = self._native
        if lane is None:
            await self._app(scope, receive, send)
            return
        step, complain = lane
        try:
            body = await step(path, await read_body(receive))
        except Problem as problem:
            await complain(problem)(scope, receive, send)
            return
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
