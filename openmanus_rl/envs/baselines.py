"""What chance and the expert achieve: the floor and the ceiling a learning curve is read against."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from openmanus_rl.envs.base import Environment, Split, Task
from openmanus_rl.envs.items import seeded
from openmanus_rl.envs.registry import environment_class, make_environment
from openmanus_rl.errors import UserError

BaselinePolicy = Literal["random", "expert"]


@dataclass(frozen=True)
class PlayedEpisode:
    """How one episode went."""

    success: bool
    episode_return: float
    turns: int


@dataclass(frozen=True)
class BaselineSuccess:
    """So many of so many episodes succeeded."""

    successes: int
    episodes: int

    @property
    def rate(self) -> float:
        return self.successes / self.episodes


def play(environment: Environment, task: Task, choose: Callable[[Environment], str]) -> PlayedEpisode:
    """Play the task to its end, asking `choose` for each action."""
    environment.reset(task)
    episode_return, turns = 0.0, 0
    while True:
        result = environment.step(choose(environment))
        episode_return += result.reward
        turns += 1
        if result.done:
            return PlayedEpisode(result.success, episode_return, turns)


def baseline_success(
    env_name: str,
    policy: BaselinePolicy,
    split: Split = "test",
    n: int = 512,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> BaselineSuccess:
    """How often a policy succeeds on the first `n` tasks of a split, once each; fewer where the split has fewer.

    Each task has its own chance, made of the seed and its id, so a task's outcome does not depend on the others.
    """
    world = environment_class(env_name)
    environment = make_environment(env_name, **(options or {}))
    item_ids = list(islice(world.item_ids(split, **(options or {})), n))
    if not item_ids:
        raise UserError(f"{env_name} has no {split} tasks with these options", "Choose a larger game or another split.")
    try:
        successes = sum(
            play(environment, Task(env_name, item_id, seed), _chooser(policy, f"{seed} {item_id}")).success
            for item_id in item_ids
        )
    finally:
        environment.close()
    return BaselineSuccess(successes, len(item_ids))


def _chooser(policy: BaselinePolicy, seed_text: str) -> Callable[[Environment], str]:
    if policy == "random":
        chance = seeded(f"baseline {seed_text}")
        return lambda environment: environment.random_action(chance.random())
    if policy == "expert":
        return _expert_choice
    raise UserError(f"there is no baseline policy {policy!r}", "Choose random or expert.")


def _expert_choice(environment: Environment) -> str:
    action = environment.expert_action()
    if action is None:
        raise UserError(f"{environment.name} knows no expert action here", "Use the random policy for this world.")
    return action
