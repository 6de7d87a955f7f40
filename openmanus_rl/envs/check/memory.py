"""Thousands of episodes leave nothing behind."""

import re

from openmanus_rl.envs.access import token_from_environment
from openmanus_rl.envs.check.subject import CheckFailed, NotChecked, Subject, gathered, play
from openmanus_rl.envs.client.transport import Transport

WARM_UP = 200
EPISODES = 1000
AT_ONCE = 20
ALLOWED_GROWTH = 0.10


async def memory_stays(subject: Subject) -> str:
    """After a warm-up, a thousand episodes add no more than a tenth to the server's memory."""
    await _play(subject, WARM_UP)
    before = await _memory(subject)
    await _play(subject, EPISODES)
    after = await _memory(subject)
    growth = after / before - 1
    told = f"{before / 2**20:.0f} MiB, after {EPISODES} episodes {after / 2**20:.0f} MiB ({growth:+.1%})"
    if growth > ALLOWED_GROWTH:
        raise CheckFailed(told)
    return told


async def _play(subject: Subject, episodes: int) -> None:
    items = subject.item_ids
    for start in range(0, episodes, AT_ONCE):
        numbers = range(start, start + AT_ONCE)
        await gathered([play(subject, items[n % len(items)], subject.script, turns=20) for n in numbers])


async def _memory(subject: Subject) -> int:
    """The resident memory of the server and of the processes below it, by its own account."""
    transport = Transport(keep_alive_seconds=1.0, token=token_from_environment())
    try:
        reply = await transport.request("GET", f"{subject.url}/metrics", None, subject.seconds)
    finally:
        await transport.aclose()
    told = dict(re.findall(r"^(\w+_memory_bytes) (\d+)$", str(reply.content), re.MULTILINE))
    if not int(told.get("process_resident_memory_bytes", 0)):
        raise NotChecked("the server does not tell its memory")
    return sum(map(int, told.values()))
