import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from live_service import call

from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.server_process import RESTARTS
from openmanus_rl.errors import UserError

WORLDS = Path(__file__).with_name("toy_worlds.py")
COUNTER = f"{WORLDS}:Counter"


def is_running(pid):
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:  # it has ended
        return ""


def wait_until(condition, seconds=240.0):
    give_up = time.monotonic() + seconds
    while not condition() and time.monotonic() < give_up:
        time.sleep(0.05)
    return condition()


def test_servers_start_side_by_side_with_their_options_and_stop_with_the_block(tmp_path):
    with launch_servers(COUNTER, options={"goal": 7}, count=2, log_dir=tmp_path) as servers:
        assert len(set(servers.urls)) == 2
        for url in servers.urls:
            assert "7" in call("GET", f"{url}/v1/env").content["instructions"]
            task = {"env": COUNTER, "item_id": "counter_0"}
            assert call("POST", f"{url}/v1/sessions", {"task": task}).status == 201
        assert servers.dead() == {}
        pids = servers.pids
    assert not any(map(is_running, pids))
    servers.stop()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["server-0.log", "server-1.log"]


def test_a_taken_port_is_named_with_the_option_that_chooses_another(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} [\s\S]*--base_port"):
            launch_servers(COUNTER, base_port=port, log_dir=tmp_path)


def test_a_base_port_that_is_free_is_used(tmp_path):
    for port in random.sample(range(20_000, 30_000), 20):  # below the ports that are handed out to whoever asks
        with contextlib.suppress(UserError):  # someone else has it
            servers = launch_servers(COUNTER, base_port=port, log_dir=tmp_path)
            break
    with servers:
        assert servers.urls == [f"http://127.0.0.1:{port}"]


def test_a_server_that_dies_at_the_start_is_told_with_the_end_of_its_log(tmp_path):
    began = time.monotonic()
    with pytest.raises(UserError, match="the model of the world is missing"):
        launch_servers(f"{WORLDS}:StuckAtBirth", count=2, log_dir=tmp_path, start_seconds=550)
    assert time.monotonic() - began < 240, "it does not wait for a server that has ended"


@pytest.fixture
def slow_world(tmp_path):
    """A world that takes minutes to import; the file beside it gets the id of the process that waits for it."""
    world = tmp_path / "slow_world.py"
    world.write_text(
        "import os, pathlib, time\n"
        "pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\n"
        "time.sleep(500)\n"
    )
    return world


def test_a_server_that_is_never_ready_is_given_up_and_killed(tmp_path, slow_world):
    with pytest.raises(UserError, match="not ready after 1 s"):
        launch_servers(f"{slow_world}:World", log_dir=tmp_path, start_seconds=1)
    assert not any(str(slow_world) in command_of(pid) for pid in os.listdir("/proc") if pid.isdigit())


def test_a_killed_server_comes_back_on_its_port(tmp_path):
    said = []
    with launch_servers(COUNTER, count=2, log_dir=tmp_path, say=said.append) as servers:
        url, killed = servers.urls[1], servers.pids[1]
        os.kill(killed, signal.SIGKILL)
        # Whoever calls meanwhile waits for the next process; nobody is refused.
        assert wait_until(lambda: is_answered(f"{url}/health"))
        assert wait_until(lambda: said)
        assert servers.pids[1] != killed
        assert servers.dead() == {}
    log = (tmp_path / "server-1.log").read_text()
    assert said == [
        f"the environment server at {url} ended (exit code -9) and was started again; its log: {tmp_path}/server-1.log"
    ]
    assert log.count("is served at") == 2
    assert f"the environment server at {url} ended (exit code -9) and was started again (1 of at most 5" in log


def is_answered(url):
    """A call that was under way when the server was killed gets no answer; the next one does."""
    try:
        return call("GET", url).status == 200
    except OSError:
        return False


def test_a_server_that_keeps_ending_stays_down_and_is_told_with_its_log(tmp_path):
    """The file beside the world makes every further process end before it serves."""
    world = tmp_path / "doomed.py"
    doom = "import pathlib, sys\nif pathlib.Path(__file__).with_name('doom').exists():\n    sys.exit('doomed')\n"
    world.write_text(doom + WORLDS.read_text())
    said = []
    with launch_servers(f"{world}:Counter", count=2, log_dir=tmp_path / "logs", say=said.append) as servers:
        (tmp_path / "doom").touch()
        os.kill(servers.pids[1], signal.SIGKILL)
        assert wait_until(lambda: len(said) == RESTARTS + 1)
        assert list(servers.dead()) == [servers.urls[1]]
        assert "doomed" in servers.dead()[servers.urls[1]]
        assert "stays down" in said[-1]
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", urlsplit(servers.urls[1]).port), timeout=60)
        assert is_answered(f"{servers.urls[0]}/health"), "the other one is left alone"


def test_a_stopped_server_is_not_started_again(tmp_path):
    said = []
    with launch_servers(COUNTER, log_dir=tmp_path, say=said.append):
        pass
    assert said == []
    assert (tmp_path / "server-0.log").read_text().count("is served at") == 1


def test_no_host_but_loopback_without_a_token(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENMANUS_RL_ENV_TOKEN", raising=False)
    with pytest.raises(UserError, match="no token"):
        launch_servers(COUNTER, host="0.0.0.0", log_dir=tmp_path)


def test_ctrl_c_in_the_terminal_does_not_reach_the_servers(tmp_path):
    with launch_servers(COUNTER, log_dir=tmp_path) as servers:
        assert os.getpgid(servers.pids[0]) != os.getpgid(0)


PARENT = """
import os, pathlib, sys, time
from openmanus_rl.envs.launch import launch_servers
servers = launch_servers(sys.argv[1], count=int(sys.argv[4]), log_dir=pathlib.Path(sys.argv[2]))
child = os.fork() if sys.argv[3] == "forks" else None
if child == 0:
    time.sleep(500)
    os._exit(0)
print(*servers.pids, child or "", flush=True)
if sys.argv[3] != "returns":
    time.sleep(500)
"""


@pytest.mark.parametrize("parent_that", ["is killed", "forks", "returns"])
def test_no_server_outlives_its_parent(tmp_path, parent_that):
    command = [sys.executable, "-c", PARENT, COUNTER, str(tmp_path), parent_that, "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        first, second, *others = [int(pid) for pid in parent.stdout.readline().split()]
        pids = [first, second]
        assert len(others) == (parent_that == "forks")
        assert all(map(is_running, pids)) or parent_that == "returns"
        if parent_that != "returns":
            parent.kill()
        parent.stdout.close()
    try:
        assert wait_until(lambda: not any(map(is_running, pids)))
        assert all(map(is_running, others)), "the servers did not wait for their parent's other child"
    finally:
        for pid in others:
            os.kill(pid, signal.SIGKILL)


def test_a_server_that_is_still_starting_does_not_outlive_its_parent(tmp_path, slow_world):
    command = [sys.executable, "-c", PARENT, f"{slow_world}:World", str(tmp_path), "is killed", "1"]
    pid = tmp_path / "pid"
    with subprocess.Popen(command) as parent:
        assert wait_until(lambda: pid.exists() and pid.read_text())
        parent.kill()
    assert wait_until(lambda: not is_running(int(pid.read_text())))
