"""What a hostile or careless caller sends: never an unhandled error, never a session left behind, and service after."""

import http.client
import inspect
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from live_service import call, live_service

from openmanus_rl.envs.registry import environment_class
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.envs.textcraft import TextCraft

HANDLED = {501, 503}
"""Server errors that are answers: the world cannot do that, the server is full."""

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
field_names = st.sampled_from(
    ["id", "action", "turn", "data_idx", "task", "env", "item_id", "seed", "extra", "options", "steps", "session_id",
     "snapshot_id", "commands", "goal", "max_steps"]
)  # fmt: skip
likely_values = json_values | st.sampled_from(
    ["textcraft", "textcraft_0", "inventory", "up", {}, [], 0, 1, -1, 2**53, 1e308]
)
option_names = sorted(inspect.signature(TextCraft).parameters)
wrong_options = st.dictionaries(st.sampled_from(option_names), likely_values, min_size=1, max_size=3)
bodies = st.one_of(
    st.binary(max_size=60),
    json_values.map(json.dumps).map(str.encode),
    st.dictionaries(field_names, likely_values, max_size=5).map(json.dumps).map(str.encode),
    st.dictionaries(field_names, st.dictionaries(field_names, likely_values, max_size=4), max_size=3)
    .map(json.dumps)
    .map(str.encode),
    st.just(b'{"task": {"env": "textcraft", "item_id": "textcraft_7"}}'),
    wrong_options.map(lambda options: json.dumps({"options": options}).encode()),
)
sessions = st.sampled_from(["OPEN", "0", "1", "-1", "9" * 16, "9" * 40, "abc", "%00", "..", "²"]) | st.text(max_size=6)
paths = st.one_of(
    st.sampled_from(["/", "/create", "/reset", "/step", "/close", "/observation", "/health", "/metrics", "/v1/env",
                     "/v1/sessions", "/v1/step_batch", "/v1/sessions/", "/v1//step", "/nonsense"]),
    st.tuples(st.just("/v1/sessions/"), sessions, st.sampled_from(["", "/step", "/reset", "/expert_action", "/snapshot",
                                                                   "/restore", "/step/step"])),
    st.text(max_size=12).map(lambda text: "/" + text),
)  # fmt: skip
requests = st.tuples(
    st.sampled_from(["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"]),
    paths,
    st.sampled_from(["", "?id=OPEN", "?id=1", "?id=x", "?id=", "?env_idx=1", "?%ff=%00"]),
    bodies,
    st.sampled_from([{}, {"Content-Type": "text/plain"}, {"Authorization": "Bearer x"}, {"X-Odd": "a" * 2000}]),
)


@pytest.fixture(scope="module")
def textcraft():
    with live_service(environment_class("textcraft"), limits=Limits(max_sessions=64, step_seconds=20)) as url:
        yield url


def bombard(url, examples):
    """Send requests that hypothesis makes up, over one connection; sessions that come about are used and closed."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=30)
    opened = []

    def filled_in(text):
        return text.replace("OPEN", str(opened[-1] if opened else 1))

    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(requests)
    def send(request):
        method, path, query, body, headers = request
        path = quote(filled_in("".join(path)), safe="/%") + filled_in(query)
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        assert response.status < 500 or response.status in HANDLED, (response.status, request, content)
        if method == "POST" and response.status in (200, 201):
            opened.extend(found_ids(content))
        while len(opened) > 30:
            call("DELETE", f"{url}/v1/sessions/{opened.pop(0)}")

    send()
    connection.close()
    for session in opened:
        call("DELETE", f"{url}/v1/sessions/{session}")


def found_ids(content):
    try:
        answer = json.loads(content)
    except ValueError:
        return []
    return [answer[key] for key in ("session_id", "id") if isinstance(answer, dict) and key in answer]


@settings(max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(options=wrong_options)
def test_options_of_any_type_are_taken_or_refused_and_never_crash_the_world(textcraft, options):
    answer = call("POST", f"{textcraft}/v1/sessions", {"options": options})
    assert answer.status in (201, 422), (options, answer)
    if answer.status == 201:
        call("DELETE", f"{textcraft}/v1/sessions/{answer.content['session_id']}")


def test_malformed_requests_are_refused_and_leave_no_session(textcraft):
    bombard(textcraft, 200)
    assert call("GET", f"{textcraft}/health").content["sessions"] == 0
    session = call("POST", f"{textcraft}/create")
    assert session.status == 200
    call("POST", f"{textcraft}/close", {"id": session.content["id"]})


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_malformed_requests_are_refused_and_leave_no_session(textcraft):
    bombard(textcraft, 10_000)
    assert call("GET", f"{textcraft}/health").content["sessions"] == 0
    session = call("POST", f"{textcraft}/create")
    assert session.status == 200
    call("POST", f"{textcraft}/close", {"id": session.content["id"]})


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\xff\x13\x37\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /step HTTP/9.9\r\n\r\n",
        b"POST /step HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /step HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 9\r\n\r\nx",
        b"POST /step HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /step HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\ncut short",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_harms_nobody(textcraft, raw):
    address = urlsplit(textcraft)
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert not answer or re.match(rb"HTTP/1\.1 4\d\d", answer)
    assert call("GET", f"{textcraft}/health").status == 200


def test_a_body_that_never_ends_is_given_up(textcraft, monkeypatch):
    monkeypatch.setattr("openmanus_rl.envs.service.wire.BODY_SECONDS", 0.3)
    address = urlsplit(textcraft)
    for path in (b"/step", b"/v1/sessions"):
        with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
            connection.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            answer = connection.recv(65536)
        assert b"did not arrive" in answer


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_thousand_abandoned_sessions_leave_no_memory_behind():
    command = ["-m", "openmanus_rl.envs.service", "--env", "maze", "--port", "0", "--max-sessions", "2100"]
    server = subprocess.Popen([sys.executable, *command, "--idle-seconds", "20"], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[-1]
        first, second = abandon(url, server.pid), abandon(url, server.pid)
    finally:
        server.terminate()
        server.wait(30)
        server.stdout.close()
    assert second <= 1.05 * first, f"{first} bytes after the first round, {second} after the second"


def abandon(url, pid):
    """Open 2,000 sessions, leave them, and tell the server's own memory once they have expired.

    Pages of program files are not counted: a system may take them back from a process that waits, and give them again.
    """
    for number in range(2000):
        answer = call("POST", f"{url}/v1/sessions", {"task": {"env": "maze", "item_id": f"maze_{number}"}})
        assert answer.status == 201, answer
    give_up = time.monotonic() + 120
    while call("GET", f"{url}/health").content["sessions"] and time.monotonic() < give_up:
        time.sleep(1)
    assert call("GET", f"{url}/health").content["sessions"] == 0
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)[1])
