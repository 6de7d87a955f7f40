"""`/metrics`: what a server counts, in Prometheus' text format."""

import asyncio
import re
import subprocess
import sys
import urllib.request
from types import SimpleNamespace

from live_service import call, live_service
from toy_worlds import Apart, Moody

from openmanus_rl.envs.check.memory import _memory
from openmanus_rl.envs.service.sessions import Limits

TASK = {"env": "counter", "item_id": "counter_0"}


def metrics(url):
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        lines = response.read().decode().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    for name in samples:
        assert re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]+"\})?', name), name
    return {name.removeprefix("openmanus_rl_env_"): float(value) for name, value in samples.items()}


def start(url):
    answer = call("POST", f"{url}/v1/sessions", {"task": TASK})
    return f"{url}/v1/sessions/{answer.content['session_id']}" if answer.status == 201 else None


def step(session, action, turn):
    return call("POST", f"{session}/step", {"action": action, "turn": turn}).status


def test_sessions_steps_latencies_failures_and_memory_are_counted():
    with live_service(Moody, {"nap": 3.0}, Limits(max_sessions=3, step_seconds=0.5)) as url:
        one, hung, crashed = start(url), start(url), start(url)
        assert start(url) is None
        assert [step(one, "up", turn) for turn in (1, 1, 2)] == [200] * 3
        assert (step(hung, "hang", 1), step(crashed, "crash", 1)) == (504, 500)
        call("DELETE", one)
        start(url)
        counted = metrics(url)
    assert counted["sessions"] == 1
    assert counted["sessions_limit"] == 3
    assert counted["sessions_opened_total"] == 4
    assert counted['sessions_ended_total{how="closed"}'] == 1
    assert counted['sessions_ended_total{how="failed"}'] == 2
    assert [counted[f'failures_total{{cause="{cause}"}}'] for cause in ("hung", "crashed", "full")] == [1, 1, 1]
    assert counted["hung_worlds"] == 1
    assert counted["step_seconds_count"] == 4, "a repeated step is no step"
    assert counted["start_seconds_count"] == 4
    assert counted['step_seconds_bucket{le="+Inf"}'] == 4
    assert counted['step_seconds_bucket{le="0.3"}'] <= 3
    assert counted["step_seconds_sum"] >= 0.5
    assert counted["process_resident_memory_bytes"] > 1e6


def test_the_memory_of_worlds_in_processes_is_told_apart():
    with live_service(Apart) as url:
        before = metrics(url)["worker_memory_bytes"]
        start(url)
        assert metrics(url)["worker_memory_bytes"] > before + 1e6


def test_the_memory_of_programs_that_a_world_starts_is_told_too():
    """As Java's: the world is on a thread, its simulator is a grandchild of the server."""
    hold = "held = bytearray(b'x' * 40_000_000); print('held', flush=True); input()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    with live_service(Moody) as url:
        before = metrics(url)["worker_memory_bytes"]
        simulator = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            simulator.stdout.readline()
            assert metrics(url)["worker_memory_bytes"] > before + 40e6
        finally:
            simulator.communicate(b"\n", timeout=60)


def test_the_check_of_memory_counts_the_server_and_what_is_below_it():
    with live_service(Apart) as url:
        start(url)
        counted = metrics(url)
        told = asyncio.run(_memory(SimpleNamespace(url=url, seconds=20.0)))
    assert told > counted["process_resident_memory_bytes"] + counted["worker_memory_bytes"] / 2
