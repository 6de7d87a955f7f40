"""A rollout strategy of one's own: an answer without a readable action is taken back, and another is tried.

openmanus-rl train rollout.validation_strategy=examples/second_chance.py:SecondChance
"""

from pydantic import Field

from openmanus_rl.agent.line import Line
from openmanus_rl.agent.strategies import Strategy


class SecondChance(Strategy):
    tries: int = Field(2, ge=1)
    """Answers that are tried in a turn."""

    async def play(self, line: Line) -> Line:
        while not line.over:
            for attempt in range(1, self.tries + 1):
                before = await line.fork(branch=attempt)
                await line.take_turn()
                readable = line.over or line.episode.turns[-1].action is not None
                if readable or attempt == self.tries:
                    await before.close()
                    break
                await line.close()
                line = before
            line.branch = 0
        return line
