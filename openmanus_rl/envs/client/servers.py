"""Several servers of one environment: where a new session goes, and where it goes instead when that server refuses."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from openmanus_rl.envs.client.base import EnvFailure, EnvTimeout, Handle, Patience
from openmanus_rl.envs.client.transport import NoAnswer, TooLate
from openmanus_rl.errors import UserError


class Full(Exception):
    """The server takes no more sessions for now."""

    def __init__(self, reason: str, wait: float) -> None:
        super().__init__(reason)
        self.wait = wait


class Servers:
    """Counts sessions per server and gives a new one to the server with the fewest."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise UserError("no environment server was given.", "Give at least one URL, such as http://127.0.0.1:36001")
        self._sessions = {url.rstrip("/"): 0 for url in urls}
        self._resting_until = dict.fromkeys(self._sessions, 0.0)

    async def start(
        self, attempt: Callable[[str, float], Awaitable[Handle]], patience: Patience, at: str | None = None
    ) -> Handle:
        """Start at one server, or somewhere: `attempt(url, seconds)` on one after another, within the budget.

        A server that gives no answer rests for a while: a silent one for as long as it was waited for. One try gets at
        most half of the time that is left, so that there is time to ask another.
        """
        deadline = time.monotonic() + patience.start_seconds
        failures: list[str] = []
        while True:
            url = at or self._fewest_sessions()
            left = deadline - time.monotonic()
            share = left / 2 if len(self._sessions) > 1 and not at else left
            self._sessions[url] += 1
            started = False
            try:
                handle = await attempt(url, share)
                started = True
                return handle
            except Full as error:
                reason, late = f"{url}: {error}", False
                pause = rest = error.wait
            except NoAnswer as error:
                reason, late = f"{url}: {error}", isinstance(error, TooLate)
                failures.append(reason)
                pause = patience.pause(len(failures))
                rest = share if late else pause
            finally:
                if not started:
                    self.release(url)
            now = time.monotonic()
            self._resting_until[url] = now + rest
            if at or all(until > now for until in self._resting_until.values()):
                await asyncio.sleep(max(0.0, min(pause, deadline - now)))
            if len(failures) >= patience.tries or time.monotonic() >= deadline:
                kind = EnvTimeout if late else EnvFailure
                raise kind(f"no session could be started ({len(failures)} failed tries). Last: {reason}")

    def release(self, url: str) -> None:
        """A session on this server has ended."""
        self._sessions[url] -= 1

    def _fewest_sessions(self) -> str:
        now = time.monotonic()
        return min(self._sessions, key=lambda url: (self._resting_until[url] > now, self._sessions[url]))
