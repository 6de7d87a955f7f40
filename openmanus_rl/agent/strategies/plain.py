"""Plain: one answer a turn, and what it does is done. The only strategy whose episodes train."""

from typing import TYPE_CHECKING, ClassVar

from openmanus_rl.agent.strategies.base import STRATEGIES, Strategy

if TYPE_CHECKING:
    from openmanus_rl.agent.line import Line


@STRATEGIES.register("plain")
class Plain(Strategy):
    """Turn after turn."""

    chooses: ClassVar[bool] = False

    async def play(self, line: "Line") -> "Line":
        while not line.over:
            await line.take_turn()
        return line
