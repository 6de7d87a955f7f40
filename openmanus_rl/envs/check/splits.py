"""What is held out is really held out: no task is in two splits, neither by its id nor by what it is."""

import json
from functools import partial

from openmanus_rl.envs.base import SPLITS, Task
from openmanus_rl.envs.check.account import trajectory
from openmanus_rl.envs.check.subject import MAX_TURNS, CheckFailed, Subject, aside

TASKS = 48


async def disjoint_splits(subject: Subject) -> str:
    """Ids are named once, and no two tasks of different splits look and play alike to their very end."""
    subject.known_world()
    for split, items in subject.items.items():
        if len(set(items)) < len(items):
            raise CheckFailed(f"{split} names an item twice")
    if not subject.items["train"]:
        raise CheckFailed("there is no train split")
    await aside(partial(_compare, subject))
    return ", ".join(f"{len(subject.items[split][:TASKS])} {split}" for split in SPLITS)


def _compare(subject: Subject) -> None:
    environment = subject.known_world()(**subject.options)
    found: dict[str, tuple[str, str]] = {}
    try:
        for split in SPLITS:
            for item_id in subject.items[split][:TASKS]:
                content = json.dumps(trajectory(environment, Task(subject.name, item_id), MAX_TURNS))
                other_split, other = found.setdefault(content, (split, item_id))
                if other_split != split:
                    raise CheckFailed(f"{item_id} of {split} is the same task as {other} of {other_split}")
                if found.setdefault(item_id, (split, item_id)) != (split, item_id):
                    raise CheckFailed(f"{item_id} is in {split} and in {found[item_id][0]}")
    finally:
        environment.close()
