"""`python -m openmanus_rl.envs.check.account WORLD OPTIONS`: a world's first tasks as this process sees them."""

import json
import random
import sys
from itertools import islice
from typing import Any

from openmanus_rl.envs.base import SPLITS, Environment, Task
from openmanus_rl.envs.items import pick, seeded
from openmanus_rl.envs.registry import environment_class, make_environment

ITEMS = 6
TURNS = 8


def account_of(name: str, options: dict[str, Any]) -> dict[str, list[tuple[str, list[Any]]]]:
    """For each split its first items, each with what is seen of it under actions that depend on the item only."""
    world = environment_class(name)
    environment = make_environment(name, **options)
    try:
        return {
            split: [
                (item_id, trajectory(environment, Task(name, item_id), TURNS))
                for item_id in islice(world.item_ids(split, **options), ITEMS)
            ]
            for split in SPLITS
        }
    finally:
        environment.close()


def trajectory(environment: Environment, task: Task, turns: int) -> list[Any]:
    """First observation, state key and instructions, then for every turn the action, its outcome and the state key."""
    chance = seeded(f"check {task.item_id}")
    first = environment.reset(task)
    seen: list[Any] = [first.text, environment.state_key(), environment.instructions()]
    for _ in range(turns):
        form = pick(environment.grammar.forms, chance.random()).shown
        action = (_apt_action(environment, chance) or form) if chance.random() < 0.7 else form
        result = environment.step(action)
        seen.append([action, result.observation.text, result.reward, result.done, environment.state_key()])
        if result.done:
            break
    return seen


def _apt_action(environment: Environment, chance: random.Random) -> str | None:
    """An action that leads somewhere: the expert's, or any valid one where the expert thinks for long."""
    if environment.expert_seconds is None:
        return environment.expert_action()
    return environment.random_action(chance.random())


if __name__ == "__main__":
    json.dump(account_of(sys.argv[1], json.loads(sys.argv[2])), sys.stdout)
