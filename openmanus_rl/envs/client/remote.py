"""Worlds that only a real AgentGym server elsewhere has: `agentgym/<family>` as an environment's name.

Such a world has tasks and instructions here, so that task files can be built and a policy trained; it is played on the
servers that `env.urls` names.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from openmanus_rl.envs.base import ActionGrammar, Environment, Observation, Split, StepResult, Task, split_of
from openmanus_rl.envs.client.agentgym import AgentGymClient
from openmanus_rl.envs.client.base import EnvironmentClient, Patience
from openmanus_rl.envs.client.descriptors import DESCRIPTORS
from openmanus_rl.envs.client.native import NativeClient
from openmanus_rl.errors import UserError, did_you_mean

PREFIX = "agentgym/"

SPLIT_SIZES: Mapping[str, tuple[int, int]] = {
    "textcraft": (374, 100),
    "maze": (215, 25),
    "wordle": (955, 25),
    "babyai": (810, 90),
    "sciworld": (2120, 200),
    "alfworld": (2420, 200),
    "webshop": (3930, 200),
    "sqlgym": (3000, 200),
    "searchqa": (900, 100),
    "webarena": (0, 20),
    "weather": (311, 20),
    "movie": (215, 20),
    "academia": (0, 20),
    "todo": (135, 20),
    "sheet": (0, 20),
}
"""How many tasks AgentGym trains and evaluates on; of searchqa, for which it names no number, the first thousand."""


class RemoteWorld(Environment):
    """A family of AgentGym on servers elsewhere. Item `<family>_<n>` is its task n."""

    grammar: ClassVar[ActionGrammar] = ActionGrammar(())
    served_elsewhere: ClassVar[bool] = True
    family: ClassVar[str]

    def instructions(self) -> str:
        return DESCRIPTORS[self.family].instructions

    @classmethod
    def item_ids(cls, split: Split, **options: Any) -> Iterator[str]:
        for number in range(sum(SPLIT_SIZES[cls.family])):
            item_id = f"{cls.family}_{number}"
            if split_of(item_id) == split:
                yield item_id

    def reset(self, task: Task) -> Observation:
        """Instructions are the same for all tasks, and what is seen is on the server."""
        return Observation("")

    def step(self, action: str) -> StepResult:
        raise UserError(f"{self.name} is played on servers elsewhere.", "Name them: env.urls=[http://HOST:PORT]")


def is_remote(env_name: str) -> bool:
    return env_name.startswith(PREFIX)


@cache
def remote_world(env_name: str) -> type[RemoteWorld]:
    """The class behind `agentgym/<family>`."""
    family = env_name.removeprefix(PREFIX)
    if family not in DESCRIPTORS:
        raise UserError(f"AgentGym has no family called {family!r}. {did_you_mean(family, DESCRIPTORS)}")
    descriptor = DESCRIPTORS[family]
    members = {
        "name": env_name,
        "family": family,
        "success_rule": descriptor.success_rule,
        "score_range": descriptor.score_range,
        "__module__": __name__,
    }
    return type(f"Remote_{family}", (RemoteWorld,), members)


def make_client(
    env_name: str, urls: Sequence[str], patience: Patience, options: Mapping[str, Any] | None = None
) -> EnvironmentClient:
    """The client for a world's servers: AgentGym's own for `agentgym/<family>`, else ours.

    `options` are for servers of ours that may have been started with others.
    """
    if is_remote(env_name):
        return AgentGymClient(remote_world(env_name).family, urls, patience=patience)
    return NativeClient(urls, patience=patience, options=options)
