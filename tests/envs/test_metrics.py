"""`/metrics`: what a server counts, in Prometheus' text format."""

import re
import urllib.request

from live_service import call, live_service
from toy_worlds import Apart, Moody

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
        start(url)
        assert metrics(url)["worker_memory_bytes"] > 1e6
