"""Steps per second of a babyai server over HTTP, against stepping the same worlds in one process.

    python bench/babyai.py [SECONDS]

Both sides play the same 64 sessions, all forty levels among them: a task is started, 31 actions are done, and so on.
The server is one process, driven by `wrk` over 64 kept-alive connections. The two sides run in turn; the ratio is
the median over the alternations of one run.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from service import SESSIONS, create, drive, server, steps_taken

from openmanus_rl.envs import Task
from openmanus_rl.envs.babyai import BabyAI
from openmanus_rl.envs.items import seeded

ALTERNATIONS = 9
TURNS = 31

LUA = """
local bodies = {%s}
local turn = 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
  turn = turn %% #bodies + 1
  return wrk.format(nil, turn <= %d and "/reset" or "/step", nil, bodies[turn])
end
"""

Script = tuple[int, list[str]]
"""The number of an item, and actions that do not end it."""


def scripts() -> Iterator[Script]:
    """Random players' first actions in one item after another."""
    world = BabyAI()
    for number in count():
        world.reset(Task("babyai", f"babyai_{number}"))
        chance = seeded(f"bench {number}")
        actions: list[str] = []
        while len(actions) < TURNS:
            actions.append(world.random_action(chance.random()))
            if world.step(actions[-1]).done:
                break
        else:
            yield number, actions


def play_here(played: list[Script], seconds: float) -> tuple[float, float]:
    """Calls a second, and processor time for each in microseconds, of all sessions by turns in this process."""
    worlds = [BabyAI() for _ in played]
    calls, began, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < began + seconds:
        for world, (number, _) in zip(worlds, played, strict=True):
            world.reset(Task("babyai", f"babyai_{number}"))
        for turn in range(TURNS):
            for world, (_, actions) in zip(worlds, played, strict=True):
                world.step(actions[turn])
                world.state_key()
        calls += (TURNS + 1) * len(worlds)
    return calls / (time.perf_counter() - began), 1e6 * (time.process_time() - cpu) / calls


def main(seconds: int) -> None:
    played = list(islice(scripts(), SESSIONS))
    babyai = ("-m", "openmanus_rl.envs.service", "--env", "babyai", "--port", "0")
    with tempfile.TemporaryDirectory() as directory, server(*babyai) as (url, pid):
        ids = [create(url) for _ in played]
        starts = [{"id": id, "data_idx": number} for id, (number, _) in zip(ids, played, strict=True)]
        steps = [
            {"id": id, "action": actions[turn]}
            for turn in range(TURNS)
            for id, (_, actions) in zip(ids, played, strict=True)
        ]
        bodies = ", ".join(f"'{json.dumps(body)}'" for body in [*starts, *steps])
        script = Path(directory) / "episodes.lua"
        script.write_text(LUA % (bodies, SESSIONS))
        drive(url, pid, script, 1)
        pairs = []
        for _ in range(ALTERNATIONS):
            before = steps_taken(url)
            served = drive(url, pid, script, seconds)
            share = (steps_taken(url) - before) / served.requests
            here, micros = play_here(played, seconds)
            pairs.append((served.rate / here, micros / served.cpu_micros))
            print(
                f"served {served.rate:6.0f} calls/s, {served.cpu_micros:4.0f} µs of CPU each ({share:.0%} steps)   "
                f"in process {here:6.0f} calls/s, {micros:4.0f} µs"
            )
    rate, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"ratio {rate:.2f} by rate, {cpu:.2f} by CPU time (medians of {ALTERNATIONS}, {SESSIONS} sessions)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, nargs="?", default=4, help="of each side, each time")
    main(parser.parse_args().seconds)
