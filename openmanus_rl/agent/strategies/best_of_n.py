"""Best of n: several answers a turn, each tried in a copy of the world; the episode goes on with the best of them.

An answer is as good as the rewards it leads to: its own turn's, and those of `lookahead` further turns that are played
from there in another copy, which is then dropped. Of equals the first is taken.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr

from openmanus_rl.agent.strategies.base import STRATEGIES, Strategy, together

if TYPE_CHECKING:
    from openmanus_rl.agent.line import Line


COPIES_AT_ONCE = 512
"""Copies of worlds over all episodes that are played together: a server takes 1024 sessions by default."""


@STRATEGIES.register("best_of_n")
class BestOfN(Strategy):
    """For worlds that can `snapshot()`."""

    n: int = Field(4, ge=2)
    """Answers sampled in each turn."""
    lookahead: int = Field(0, ge=0)
    """Turns played on after each of them to see what it is worth."""

    _room: asyncio.Semaphore = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        copies = self.n - 1 + (self.n if self.lookahead else 0)
        self._room = asyncio.Semaphore(max(1, COPIES_AT_ONCE // copies))

    async def play(self, line: "Line") -> "Line":
        while not line.over:
            async with self._room:
                line = await self._take_best_turn(line)
        return line

    async def _take_best_turn(self, line: "Line") -> "Line":
        copies = await together([line.fork(branch) for branch in range(1, self.n)])
        branches = [line, *copies]
        await together([branch.take_turn() for branch in branches])
        worths = await together([self._worth(branch) for branch in branches])
        best = branches[worths.index(max(worths))]
        await together([branch.close() for branch in branches if branch is not best])
        best.branch = 0
        return best

    async def _worth(self, line: "Line") -> float:
        if line.over or not self.lookahead:
            return line.episode.episode_return
        ahead = await line.fork(line.branch)
        for _ in range(self.lookahead):
            if not ahead.over:
                await ahead.take_turn()
        await ahead.close()
        return ahead.episode.episode_return
