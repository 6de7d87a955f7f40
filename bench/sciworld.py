"""How many steps a second one sciworld server makes over HTTP, with several sessions at once.

Each session walks through the house, opens, looks and waits, in one variation after another, and starts anew after each
walk. The first seconds, in which Java's compilers warm up, are not counted.
"""

import argparse
import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from openmanus_rl.envs import Task
from openmanus_rl.envs.client import NativeClient
from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.sciworld import SciWorld

WALK = """
look around | inventory | open door to kitchen | go to kitchen | look in cupboard | open cupboard | pick up thermometer
| look at thermometer | open freezer | wait1 | open door to hallway | go to hallway | open door to workshop
| go to workshop | look around | wait1 | go to hallway | open door to bedroom | go to bedroom | look around
"""


async def play(client: NativeClient, items: list[str], until: float, done: list[float]) -> None:
    """One session after another; the time of each step's end is noted."""
    for item_id in items:
        handle = await client.start(Task("sciworld", item_id))
        for action in map(str.strip, WALK.split("|")):
            if time.monotonic() > until or handle.done:
                break
            await client.step(handle, action)
            done.append(time.monotonic())
        await client.close(handle)
        if time.monotonic() > until:
            return


async def measure(url: str, sessions: int, warm_up: float, seconds: float) -> float:
    began = time.monotonic()
    done: list[float] = []
    ids = list(SciWorld.item_ids("train"))
    async with NativeClient([url]) as client:
        players = [play(client, ids[n::sessions], began + warm_up + seconds, done) for n in range(sessions)]
        await asyncio.gather(*players)
    counted = [moment for moment in done if moment > began + warm_up]
    return len(counted) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--warm-up", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    with TemporaryDirectory() as logs, launch_servers("sciworld", log_dir=Path(logs)) as servers:
        rate = asyncio.run(measure(servers.urls[0], given.sessions, given.warm_up, given.seconds))
    print(f"{given.sessions} sessions: {rate:.0f} steps/s, task starts included")


if __name__ == "__main__":
    main()
