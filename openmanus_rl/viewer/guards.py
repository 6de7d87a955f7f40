"""What stands between the page and the world: who may ask, and what the page may do."""

import secrets
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmanus_rl.envs.access import is_loopback

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


class Guard:
    """Reading only, from where it was meant to be read, with headers that leave nothing to a mistake.

    Without a token only a loopback name may be asked for: a page elsewhere that points its own name at this machine
    gets nothing. With one, the first address carries it, and a cookie of this site after that.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._refusal(scope)
        await (answer or self.app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """An answer in place of the app's, if the request is not simply let through."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("This page only reads.\n", 405, {"allow": "GET, HEAD"})
        headers = Headers(scope=scope)
        if self.token is None:
            host = headers.get("host", "").rsplit(":", 1)[0].strip("[]")
            return None if is_loopback(host) else PlainTextResponse("Ask for 127.0.0.1.\n", 403)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = dict(query).get("token")
        if given is not None and secrets.compare_digest(given.encode(), self.token.encode()):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            response = RedirectResponse("/" + scope["path"].lstrip("/") + (f"?{rest}" if rest else ""), 303)
            response.set_cookie(
                _cookie(scope), self.token, httponly=True, samesite="lax"
            )  # a link from elsewhere opens it
            return response
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie(scope), "")
        if secrets.compare_digest(cookie.encode(), self.token.encode()):
            return None
        return PlainTextResponse(
            "This page needs the address with its token, as `openmanus-rl view` printed it.\n", 401
        )


def _cookie(scope: Scope) -> str:
    """Its name has the port: a browser gives cookies to all ports of a machine, and each may be another page's."""
    return f"openmanus_viewer_{scope['server'][1]}"
