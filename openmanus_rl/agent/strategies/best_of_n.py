"""Best of n: several answers a turn, each tried in a copy of the world; the episode goes on with the best of them.

An answer is as good as the rewards it leads to: its own turn's, and those of `lookahead` further turns that are played
from there in another copy, which is then dropped. Of equals the first is taken.
"""

from typing import TYPE_CHECKING

from pydantic import Field

from openmanus_rl.agent.strategies.base import STRATEGIES, Strategy, together

if TYPE_CHECKING:
    from openmanus_rl.agent.line import Line


@STRATEGIES.register("best_of_n")
class BestOfN(Strategy):
    """For worlds that can `snapshot()`."""

    n: int = Field(4, ge=2)
    """Answers sampled in each turn."""
    lookahead: int = Field(0, ge=0)
    """Turns played on after each of them to see what it is worth."""

    async def play(self, line: "Line") -> "Line":
        while not line.over:
            copies = await together([line.fork(branch) for branch in range(1, self.n)])
            branches = [line, *copies]
            await together([branch.take_turn() for branch in branches])
            worths = await together([self._worth(branch) for branch in branches])
            best = max(range(self.n), key=lambda number: (worths[number], -number))
            line = branches[best]
            await together([branch.close() for branch in branches if branch is not line])
            line.branch = 0
        return line

    async def _worth(self, line: "Line") -> float:
        if line.over or not self.lookahead:
            return line.episode.episode_return
        ahead = await line.fork(line.branch)
        for _ in range(self.lookahead):
            if not ahead.over:
                await ahead.take_turn()
        await ahead.close()
        return ahead.episode.episode_return
