"""The same task is the same everywhere: in every process, in every session of a group, beside any other session."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

from openmanus_rl.envs.check.subject import CheckFailed, NotChecked, Subject, first_difference, gathered, play

HASH_SEEDS = ("0", "1", "4242")
PROCESS_SECONDS = 300.0
GROUP = 8
SESSIONS = 64


async def same_task_in_every_process(subject: Subject) -> str:
    """Item ids, first observations and the same actions' outcomes do not depend on the process or its hash seed."""
    subject.known_world()
    accounts = await gathered([asyncio.to_thread(_account, subject, seed) for seed in HASH_SEEDS])
    for seed, other in zip(HASH_SEEDS[1:], accounts[1:], strict=True):
        for split, items in accounts[0].items():
            if [item for item, _ in items] != [item for item, _ in other[split]]:
                raise CheckFailed(f"{split} has other items with PYTHONHASHSEED={seed}")
            for (item, here), (_, there) in zip(items, other[split], strict=True):
                if here != there:
                    raise CheckFailed(f"{item} with PYTHONHASHSEED={seed}: {first_difference(here, there)}")
    tasks = sum(len(items) for items in accounts[0].values())
    return f"{tasks} tasks in {len(HASH_SEEDS)} processes with different hash seeds"


def _account(subject: Subject, hash_seed: str) -> dict[str, list[tuple[str, list[Any]]]]:
    paths = os.pathsep.join(filter(None, sys.path))
    ran = subprocess.run(
        [sys.executable, "-m", "openmanus_rl.envs.check.account", subject.name, json.dumps(dict(subject.options))],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
    )
    if ran.returncode != 0:
        raise CheckFailed(f"with PYTHONHASHSEED={hash_seed} the world cannot be played: {ran.stderr.strip()[-300:]}")
    account: dict[str, list[tuple[str, list[Any]]]] = json.loads(ran.stdout)
    return account


async def identical_resets(subject: Subject) -> str:
    """Every session of a group starts the same way, also after others were played."""
    for item_id in subject.item_ids:
        alone = await play(subject, item_id, subject.script, turns=3)
        for other in await gathered([play(subject, item_id, subject.script, turns=0) for _ in range(GROUP)]):
            if other.seen != alone.seen[:3]:
                raise CheckFailed(f"{item_id}: {first_difference(alone.seen[:3], other.seen)}")
    return f"{len(subject.item_ids)} tasks, {GROUP} sessions each"


async def isolated_sessions(subject: Subject) -> str:
    """What a session sees does not depend on the sessions beside it."""
    items = subject.item_ids
    if not items:
        raise NotChecked("no items are known")
    alone = {item_id: await play(subject, item_id, subject.script, turns=12) for item_id in items}
    chosen = [items[index % len(items)] for index in range(SESSIONS)]
    for beside in await gathered([play(subject, item_id, subject.script, turns=12) for item_id in chosen]):
        if beside.seen != alone[beside.item_id].seen:
            raise CheckFailed(f"{beside.item_id}: {first_difference(alone[beside.item_id].seen, beside.seen)}")
    return f"{SESSIONS} sessions, {min(SESSIONS, subject.sessions_at_once)} at once, {len(items)} tasks"
