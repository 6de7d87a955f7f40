"""What a rollout strategy is: it plays a line to its end, and may try several ways before it takes one."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import ValidationError

from openmanus_rl.config.base import Config
from openmanus_rl.errors import UserError
from openmanus_rl.registry import Registry

if TYPE_CHECKING:
    from openmanus_rl.agent.line import Line

Result = TypeVar("Result")


class Strategy(Config, ABC):
    """One way to play. Its fields are its options.

    `line.take_turn()` plays on, `line.fork(branch)` copies a line with its world, `line.close()` ends one that is not
    wanted any more. All lines that are left are closed by whoever called `play`.
    """

    chooses: ClassVar[bool] = True
    """Whether it keeps some of what was sampled and drops the rest. Then what it kept is not a sample of the policy:
    it must not train, and rows of it are refused."""

    @abstractmethod
    async def play(self, line: "Line") -> "Line":
        """Play until a line is over, and return that line."""


STRATEGIES: Registry[type[Strategy]] = Registry("rollout strategy")


def find_strategy(name: str, options: Mapping[str, Any]) -> Strategy:
    """The strategy called `name`, or a user's own at `module:name`, with its options."""
    strategy = STRATEGIES.lookup(name)
    if not (isinstance(strategy, type) and issubclass(strategy, Strategy)):
        raise UserError(
            f"{name} is not a rollout strategy.",
            "Derive it from openmanus_rl.agent.strategies.Strategy; docs/agent.md.",
        )
    try:
        return strategy.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        known = ", ".join(strategy.model_fields) or "none"
        raise UserError(
            f"rollout.validation_strategy_options.{where}: {first['msg']}.", f"The options of {name}: {known}."
        ) from error


async def together(work: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run all to their end, then raise the first failure there was: none is left running."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
