"""Steps per second of the environment service over HTTP, against a Starlette handler that echoes the same body.

    python bench/service.py [SECONDS]

One server process each, 64 sessions on 64 kept-alive connections, driven by `wrk` (apt install wrk). The two sides run
in turn; the ratio is the median over the alternations of one run. Every step is a step of the world: the server's own
count must agree with what wrk sent.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ALTERNATIONS = 15
SESSIONS = 64
ACTION = "get 1 oak log"

ECHO = """
import sys
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from openmanus_rl.envs.access import listen, url_of
from openmanus_rl.envs.service.serve import run_app

async def echo(request):
    return Response(await request.body(), media_type="application/json")

listener = listen("127.0.0.1", 0, "")
print("echo is served at", url_of(listener), flush=True)
run_app(Starlette(routes=[Route("/step", echo, methods=["POST"])]), listener)
"""

LUA = """
local bodies = {%s}
local turn = 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
  turn = turn %% #bodies + 1
  return wrk.format(nil, nil, nil, bodies[turn])
end
"""


@contextmanager
def server(*command: str) -> Iterator[tuple[str, int]]:
    """The URL and the process id of a server that runs until the end of the block."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        process.terminate()
        process.wait()


def create(url: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(f"{url}/create", b"{}")) as response:
        return json.load(response)["id"]


def steps_taken(url: str) -> int:
    with urllib.request.urlopen(f"{url}/metrics") as response:
        return int(re.search(rb"step_seconds_count (\d+)", response.read())[1])


class Driven(NamedTuple):
    """How a server did under wrk."""

    rate: float
    """Requests per second."""
    requests: int
    cpu_micros: float
    """Of the server's processor time, for each request: the same figure on a busy machine."""


def drive(url: str, pid: int, script: Path, seconds: int) -> Driven:
    command = ["wrk", "-t1", f"-c{SESSIONS}", f"-d{seconds}s", "--timeout", "30s", "-s", str(script), f"{url}/step"]
    before = cpu_seconds(pid)
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in report or "Socket errors" in report:
        raise SystemExit(report)
    requests = int(re.search(r"(\d+) requests in", report)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", report)[1])
    return Driven(rate, requests, 1e6 * (cpu_seconds(pid) - before) / requests)


def cpu_seconds(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main(seconds: int) -> None:
    options = json.dumps({"max_steps": 1_000_000_000})
    textcraft = ("-m", "openmanus_rl.envs.service", "--env", "textcraft", "--port", "0", "--options", options)
    with (
        tempfile.TemporaryDirectory() as directory,
        server(*textcraft) as (url, pid),
        server("-c", ECHO) as (echo_url, echo_pid),
    ):
        bodies = [json.dumps({"id": create(url), "action": ACTION}) for _ in range(SESSIONS)]
        script = Path(directory) / "steps.lua"
        script.write_text(LUA % ", ".join(f"'{body}'" for body in bodies))
        drive(url, pid, script, 1)
        drive(echo_url, echo_pid, script, 1)
        pairs = []
        for _ in range(ALTERNATIONS):
            before = steps_taken(url)
            ours = drive(url, pid, script, seconds)
            taken = steps_taken(url) - before
            if not ours.requests <= taken <= ours.requests + SESSIONS:
                raise SystemExit(f"{ours.requests} requests were answered, and {taken} steps taken")
            echo = drive(echo_url, echo_pid, script, seconds)
            pairs.append((ours, echo))
            print(
                f"textcraft {ours.rate:7.0f} steps/s, {ours.cpu_micros:4.0f} µs of CPU each   "
                f"echo {echo.rate:7.0f} requests/s, {echo.cpu_micros:4.0f} µs"
            )
    ratio = statistics.median(ours.rate / echo.rate for ours, echo in pairs)
    cpu_ratio = statistics.median(echo.cpu_micros / ours.cpu_micros for ours, echo in pairs)
    print(f"ratio {ratio:.2f} by rate, {cpu_ratio:.2f} by CPU time (medians of {ALTERNATIONS}, {SESSIONS} sessions)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", type=int, nargs="?", default=2, help="of each side, each time")
    main(parser.parse_args().seconds)
