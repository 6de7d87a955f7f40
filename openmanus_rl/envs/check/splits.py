"""What is held out is really held out: no task is in two splits, neither by its id nor by what it is."""

import json
from functools import partial

from openmanus_rl.envs.base import SPLITS, Split, Task
from openmanus_rl.envs.check.account import trajectory
from openmanus_rl.envs.check.subject import MAX_TURNS, CheckFailed, Subject, aside
from openmanus_rl.envs.registry import make_environment

TASKS = 24
PONDERED_TURNS = 20
"""Of a task are played where the expert, which would lead to its end, thinks for long."""


async def disjoint_splits(subject: Subject) -> str:
    """Ids are named once, and no two tasks of different splits look and play alike to their very end."""
    subject.known_world()
    split_of: dict[str, Split] = {}
    for split in SPLITS:
        for item_id in subject.items[split]:
            if item_id in split_of:
                raise CheckFailed(f"{item_id} is in {split_of[item_id]} and in {split}")
            split_of[item_id] = split
    if not subject.items["train"]:
        raise CheckFailed("there is no train split")
    await aside(partial(_compare, subject))
    return ", ".join(f"{len(subject.items[split][:TASKS])} {split}" for split in SPLITS)


def _compare(subject: Subject) -> None:
    environment = make_environment(subject.name, **subject.options)
    turns = MAX_TURNS if environment.expert_seconds is None else PONDERED_TURNS
    found: dict[str, tuple[str, str]] = {}
    try:
        for split in SPLITS:
            for item_id in subject.items[split][:TASKS]:
                content = json.dumps(trajectory(environment, Task(subject.name, item_id), turns))
                other_split, other = found.setdefault(content, (split, item_id))
                if other_split != split:
                    raise CheckFailed(f"{item_id} of {split} is the same task as {other} of {other_split}")
    finally:
        environment.close()
