import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from live_service import call, live_service
from toy_worlds import Counter, Moody, StuckAtBirth

from openmanus_rl.envs.service import sessions
from openmanus_rl.envs.service.app import build_app
from openmanus_rl.envs.service.serve import main
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.errors import UserError

TASK = {"env": "counter", "item_id": "counter_0"}


@pytest.fixture(scope="module")
def counter():
    with live_service(Counter) as url:
        yield url


@pytest.fixture(scope="module")
def moody():
    with live_service(Moody, {"nap": 600}) as url:
        yield url


@pytest.fixture
def impatient():
    """A server on which a world may not hang for long; here they hang until the end of the test."""

    class Sleepy(Moody):
        wake = threading.Event()

    with live_service(Sleepy, {"nap": 600}, Limits(step_seconds=0.2, max_hung=2)) as url:
        yield url, Sleepy.wake
        Sleepy.wake.set()


def start(url, **more):
    answer = call("POST", f"{url}/v1/sessions", {"task": {**TASK, **more}})
    assert answer.status == 201, answer
    return f"{url}/v1/sessions/{answer.content['session_id']}"


def step(session, action, turn):
    return call("POST", f"{session}/step", {"action": action, "turn": turn})


def test_a_session_starts_in_one_call_and_steps_to_the_end(counter):
    opened = call("POST", f"{counter}/v1/sessions", {"task": TASK}).content
    assert opened["observation"] == "native: 0 of 3"
    assert opened["state_key"] == "at 0"
    assert opened["instructions"].startswith("Count to 3")
    session = f"{counter}/v1/sessions/{opened['session_id']}"
    for turn in (1, 2):
        assert not step(session, "up", turn).content["terminated"]
    last = step(session, "up", 3).content
    assert last == {
        "observation": "native: 3 of 3",
        "reward": 3.0,
        "terminated": True,
        "truncated": False,
        "success": True,
        "info": {"acted": 3},
        "state_key": "at 3",
    }


def test_a_session_can_be_reset_to_another_task_and_its_turns_start_again(counter):
    created = call("POST", f"{counter}/v1/sessions", {"env": "counter"})
    session = f"{counter}/v1/sessions/{created.content['session_id']}"
    assert call("POST", f"{session}/reset", {"task": TASK}).content["state_key"] == "at 0"
    step(session, "up", 1)
    assert call("POST", f"{session}/reset", {"task": {**TASK, "item_id": "counter_1"}}).content["state_key"] == "at 1"
    assert step(session, "up", 1).content["state_key"] == "at 2"


def test_a_repeated_step_is_answered_from_memory(counter):
    session = start(counter)
    first = step(session, "up", 1)
    assert step(session, "up", 1).content == first.content
    assert step(session, "up", 2).content["info"] == {"acted": 2}


def test_a_repeated_step_waits_for_the_first_and_acts_once(moody):
    session = start(moody)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(step(session, "doze", 1))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    assert [answer.content["info"] for answer in answers] == [{"acted": 1}] * 3


@pytest.mark.parametrize(("action", "turn"), [("up", 3), ("down", 1), ("up", 7)])
def test_a_turn_out_of_order_is_refused_and_changes_nothing(counter, action, turn):
    session = start(counter)
    step(session, "up", 1)
    refused = step(session, action, turn)
    assert refused.status == 409
    assert "next turn is 2" in refused.content["detail"]
    assert step(session, "up", 2).content["info"] == {"acted": 2}


def test_after_the_end_a_step_is_refused_but_the_last_one_can_be_asked_again(counter):
    session = start(counter, item_id="counter_2")
    end = step(session, "up", 1)
    assert step(session, "up", 2).status == 409
    assert step(session, "up", 1).content == end.content


def test_a_step_before_any_task_is_refused(counter):
    created = call("POST", f"{counter}/v1/sessions", {}).content
    assert step(f"{counter}/v1/sessions/{created['session_id']}", "up", 1).status == 409


def test_two_sessions_never_see_each_others_count(counter):
    one, other = start(counter), start(counter, item_id="counter_1")
    step(one, "up", 1)
    assert step(other, "up", 1).content["state_key"] == "at 2"
    assert step(one, "up", 2).content["state_key"] == "at 2"


def test_session_ids_are_unguessable_and_exact_in_any_json_reader(counter):
    ids = [int(start(counter).rpartition("/")[2]) for _ in range(20)]
    assert len(set(ids)) == 20
    assert all(0 <= number < 2**53 for number in ids)
    assert max(ids) > 2**46


def test_a_closed_session_is_unknown(counter):
    session = start(counter)
    assert call("DELETE", session).status == 204
    assert step(session, "up", 1).status == 404


def test_closing_twice_is_fine(counter):
    session = start(counter)
    assert [call("DELETE", session).status for _ in range(3)] == [204] * 3


@pytest.mark.parametrize("name", ["1", "abc", "-1", "²", "9" * 5000])
def test_a_session_that_never_was_is_unknown(counter, name):
    from urllib.parse import quote

    answer = call("POST", f"{counter}/v1/sessions/{quote(name)}/step", {"action": "up", "turn": 1})
    assert answer.status == 404
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "raw", "status"),
    [
        ("", b"not json", 422),
        ("", b"", 422),
        ("", b"[]", 422),
        ("", b'{"tsk": {}}', 422),
        ("", b'{"task": {"env": "counter", "item_id": 7}}', 422),
        ("", b'{"task": {"env": "counter", "item_id": "counter_0", "ground_truth": "42"}}', 422),
        ("", b'{"task": {"env": "maze", "item_id": "maze_0"}}', 422),
        ("", b'{"env": "maze"}', 422),
        ("", b'{"task": {"env": "counter", "item_id": "other_0"}}', 422),
        ("", b'{"options": {"colour": "red"}}', 422),
        ("", b'{"options": ' + b"[" * 5000 + b"]" * 5000 + b"}", 422),
        ("/step", b'{"action": "up"}', 422),
        ("/step", b'{"action": "up", "turn": 0}', 422),
        ("/step", b'{"action": "up", "turn": "1"}', 422),
        ("/step", b'{"action": "up", "turn": ' + b"1" * 5000 + b"}", 422),
        ("/step", b'{"action": "\\ud800", "turn": 1}', 422),
        ("/step", b'{"action": "\xff", "turn": 1}', 422),
        ("/step", b'{"action": "' + b"x" * (1 << 20) + b'", "turn": 1}', 413),
        ("/restore", b'{"snapshot_id": 1}', 404),
        ("/nonsense", b"{}", 404),
    ],
)
def test_bad_input_is_a_problem_detail_and_never_a_server_error(counter, path, raw, status):
    where = start(counter) + path if path else f"{counter}/v1/sessions"
    answer = call("POST", where, raw=raw)
    assert answer.status == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert set(answer.content) == {"type", "title", "status", "detail"}
    assert answer.content["status"] == status


def test_a_refused_task_leaves_no_session_behind(counter):
    before = call("GET", f"{counter}/health").content["sessions"]
    call("POST", f"{counter}/v1/sessions", {"task": {**TASK, "item_id": "other_0"}})
    assert call("GET", f"{counter}/health").content["sessions"] == before


def test_a_hung_world_ends_its_session(impatient):
    url, _ = impatient
    hung = start(url)
    assert step(hung, "hang", 1).status == 504
    assert step(hung, "up", 2).status == 404


def test_a_hung_world_holds_up_no_other():
    entered, wake = threading.Event(), threading.Event()

    class Sleepy(Moody):
        def misbehave(self, action):
            if action == "hang":
                entered.set()
                wake.wait(600)

    with live_service(Sleepy) as url:
        hung, other = start(url), start(url)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(step(hung, "hang", 1)))
        thread.start()
        assert entered.wait(240)
        assert step(other, "up", 1).status == 200
        assert answers == [], "the other world still hangs"
        wake.set()
        thread.join(240)
    assert answers[0].status in (200, 504)


def test_hung_worlds_are_bounded_and_the_server_recovers_when_they_end(impatient):
    url, wake = impatient
    for _ in range(2):
        assert step(start(url), "hang", 1).status == 504
    assert call("GET", f"{url}/health").status == 503
    refused = call("POST", f"{url}/v1/sessions", {"task": TASK})
    assert refused.status == 503
    assert "hang" in refused.content["detail"]
    wake.set()
    give_up = time.monotonic() + 240
    while call("GET", f"{url}/health").status == 503 and time.monotonic() < give_up:
        time.sleep(0.05)
    start(url)


def test_a_hung_world_does_not_keep_the_service_from_stopping():
    with live_service(Moody, {"nap": 600}, Limits(step_seconds=0.1)) as url:
        step(start(url), "hang", 1)
        session = start(url)
        threading.Thread(target=lambda: step(session, "hang", 1), daemon=True).start()
        began = time.monotonic()
    assert time.monotonic() - began < 100


@pytest.mark.parametrize("action", ["crash", "exit", "nonsense"])
def test_a_failing_world_fails_its_step_only_and_tells_no_secrets(moody, action):
    session, other = start(moody), start(moody)
    failed = step(session, action, 1)
    assert failed.status == 500
    assert failed.content["title"] == "The world failed"
    assert "42" not in str(failed.content)
    assert step(other, "up", 1).status == 200


def test_a_crashed_world_has_no_session_any_more(moody):
    session = start(moody)
    step(session, "crash", 1)
    assert step(session, "up", 1).status == 404


def test_a_full_server_refuses_with_retry_after_until_a_session_closes():
    with live_service(Counter, limits=Limits(max_sessions=2)) as url:
        first = start(url)
        start(url)
        refused = call("POST", f"{url}/v1/sessions", {"task": TASK})
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        call("DELETE", first)
        start(url)


def test_an_unused_session_expires_and_a_used_one_does_not(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(sessions, "time", SimpleNamespace(monotonic=lambda: clock[0], perf_counter=time.perf_counter))
    with live_service(Counter, limits=Limits(idle_seconds=0.2)) as url:
        unused, used = start(url), start(url)
        clock[0] = 0.15
        assert step(used, "wait", 1).status == 200
        clock[0] = 0.3
        give_up = time.monotonic() + 240
        while call("GET", f"{url}/health").content["sessions"] == 2 and time.monotonic() < give_up:
            time.sleep(0.05)
        assert step(used, "wait", 2).status == 200
        assert step(unused, "up", 1).status == 404


def test_a_snapshot_brings_back_the_state_and_the_turn_in_any_session(counter):
    session, other = start(counter), start(counter)
    step(session, "up", 1)
    kept = call("POST", f"{session}/snapshot").content
    assert set(kept) == {"snapshot_id"}
    step(session, "up", 2)
    for one in (session, other):
        back = call("POST", f"{one}/restore", kept).content
        assert back == {"observation": "native: 1 of 3", "state_key": "at 1", "turn": 1, "done": False}
        assert step(one, "up", 2).content["state_key"] == "at 2"


def test_a_snapshot_of_the_middle_makes_a_finished_episode_playable_again(counter):
    session = start(counter, item_id="counter_2")
    kept = call("POST", f"{session}/snapshot").content
    step(session, "up", 1)
    call("POST", f"{session}/restore", kept)
    assert step(session, "up", 1).content["success"]


def test_only_so_many_snapshots_are_kept():
    with live_service(Counter, limits=Limits(max_snapshots=2)) as url:
        session = start(url)
        kept = [call("POST", f"{session}/snapshot").content for _ in range(3)]
        assert [call("POST", f"{session}/restore", one).status for one in kept] == [404, 200, 200]


def test_a_world_without_snapshots_says_so(moody):
    assert call("POST", f"{start(moody)}/snapshot").status == 501


def test_the_expert_is_asked_without_acting(counter):
    session = start(counter)
    assert call("GET", f"{session}/expert_action").content == {"action": "up"}
    assert step(session, "up", 1).content["info"] == {"acted": 1}


class Ponderer(Counter):
    """Its expert thinks for a while, and says so where the option tells it to."""

    def __init__(self, candid: bool = False) -> None:
        super().__init__()
        vars(self)["expert_seconds"] = 60.0 if candid else None

    def expert_action(self) -> str:
        time.sleep(0.4)
        return "up"


@pytest.mark.parametrize(("candid", "status"), [(True, 200), (False, 504)])
def test_an_expert_has_the_time_that_the_world_states_with_its_options(candid, status):
    with live_service(Ponderer, {"candid": candid}, Limits(step_seconds=0.1)) as url:
        assert call("GET", f"{start(url)}/expert_action").status == status


def test_the_service_describes_its_world(counter):
    assert call("GET", f"{counter}/v1/env").content == {
        "name": "counter",
        "grammar": "up",
        "forms": ["up"],
        "success_rule": "the goal is reached",
        "score_range": [0.0, 100.0],
        "sessions_at_once": None,
        "expert_seconds": None,
        "isolation": "thread",
        "instructions": "Count to 3. Actions: up.",
    }
    assert call("GET", f"{counter}/health").content["status"] == "ok"


def test_options_of_a_session_go_before_the_servers():
    with live_service(Counter, {"goal": 5}) as url:
        body = {"task": TASK, "options": {"wording": "loud"}}
        assert call("POST", f"{url}/v1/sessions", body).content["observation"] == "loud: 0 of 5"


def test_a_server_with_a_token_serves_nobody_else():
    with live_service(Counter, token="s3cret") as url:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            assert call("POST", f"{url}/v1/sessions", {"task": TASK}, headers).status == 401
            assert call("GET", f"{url}/health", headers=headers).status == 401
        admitted = {"Authorization": "Bearer s3cret"}
        assert call("POST", f"{url}/v1/sessions", {"task": TASK}, admitted).status == 201


def test_other_machines_are_refused_without_a_token(capsys, monkeypatch):
    monkeypatch.delenv("OPENMANUS_RL_ENV_TOKEN", raising=False)
    assert main(["--env", "maze", "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "OPENMANUS_RL_ENV_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--env", "mase"], "maze"),
        (["--env", "maze", "--options", "{"], "not JSON"),
        (["--env", "maze", "--options", '{"colour": 1}'], "colour"),
        (["--env", "maze", "--port", "99999"], "99999 is no port"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_is_served(capsys, arguments, told):
    assert main(["--port", "0", *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("token", ["s3cret\n", "s3 cret", "clé"])
def test_a_token_that_no_request_could_bear_is_told_and_not_shown(capsys, monkeypatch, token):
    monkeypatch.setenv("OPENMANUS_RL_ENV_TOKEN", token)
    assert main(["--env", "maze", "--port", "0"]) == 2
    told = capsys.readouterr().err
    assert "OPENMANUS_RL_ENV_TOKEN cannot be sent" in told
    assert token not in told


def test_a_world_that_cannot_be_built_is_told_at_the_start():
    with pytest.raises(UserError, match="the model of the world is missing"):
        build_app(StuckAtBirth)


def test_the_room_of_worlds_needs_no_torch():
    code = (
        "import sys, openmanus_rl.envs, openmanus_rl.envs.client, openmanus_rl.envs.launch;"
        "import openmanus_rl.envs.service.serve;"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=240).returncode == 0
