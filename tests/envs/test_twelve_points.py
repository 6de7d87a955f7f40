"""What goes wrong on AgentGym's servers, point by point as `agentgym-protocol.md` lists it, and does not here."""

import ast
import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import toy_worlds
from live_service import call, live_service

import openmanus_rl
from openmanus_rl.envs import ENVIRONMENTS
from openmanus_rl.envs.access import require_safe_host
from openmanus_rl.envs.base import Task
from openmanus_rl.envs.check.run import CHECKS, check_server
from openmanus_rl.envs.client import NativeClient
from openmanus_rl.envs.client.agentgym import AgentGymClient
from openmanus_rl.envs.client.descriptors import DESCRIPTORS
from openmanus_rl.envs.service.serve import _parser
from openmanus_rl.envs.service.sessions import Limits
from openmanus_rl.errors import UserError

BY_NAME = {check.name: check for check in CHECKS}
TASK = {"env": "counter", "item_id": "counter_0"}


def start(url, **more):
    return call("POST", f"{url}/v1/sessions", {"task": {**TASK, **more}})


def test_1_an_id_names_the_same_task_with_any_hash_seed_and_from_any_directory(tmp_path):
    code = (
        "import json, sys; from openmanus_rl.envs.check.account import account_of;"
        "print(json.dumps({name: account_of(name, {}) for name in ('maze', 'textcraft')}))"
    )
    root = str(Path(openmanus_rl.__file__).parents[1])
    accounts = []
    for seed, place in (("1", tmp_path), ("77", Path.home())):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
        ran = subprocess.run([sys.executable, "-c", code], env=env, cwd=place, capture_output=True, check=True)
        accounts.append(json.loads(ran.stdout))
    assert accounts[0] == accounts[1]


def test_2_every_session_closes_expires_and_counts_against_a_limit():
    with live_service(toy_worlds.Counter, limits=Limits(max_sessions=2, idle_seconds=0.4)) as url:
        closed, left = start(url).content["session_id"], start(url).content["session_id"]
        assert start(url).status == 503
        assert call("DELETE", f"{url}/v1/sessions/{closed}").status == 204
        give_up = time.monotonic() + 10
        while call("GET", f"{url}/health").content["sessions"] and time.monotonic() < give_up:
            time.sleep(0.05)
        assert call("GET", f"{url}/v1/sessions/{left}/expert_action").status == 404


def test_3_a_full_server_refuses_ids_cannot_be_guessed_and_strangers_need_a_token():
    with live_service(toy_worlds.Counter, limits=Limits(max_sessions=1)) as url:
        assert start(url).content["session_id"] > 2**30
        full = start(url)
        assert (full.status, full.headers["Retry-After"]) == (503, "1")
    with pytest.raises(UserError, match="token"):
        require_safe_host("0.0.0.0", None)
    assert _parser().parse_args(["--env", "maze"]).host == "127.0.0.1"


def test_4_the_gold_answer_is_neither_taken_nor_sent():
    with live_service(toy_worlds.Counter) as url:
        assert call("POST", f"{url}/v1/sessions", {"task": {**TASK, "ground_truth": "x"}}).status == 422
    wordle = ENVIRONMENTS["wordle"]()
    wordle.reset(Task("wordle", "wordle_5"))
    result = None
    while result is None or not result.success:
        secret = wordle.expert_action()
        result = wordle.step(secret)
    told = [wordle.reset(Task("wordle", "wordle_5")).text]
    done = False
    while not done:
        result = wordle.step("v i v i d")
        done = result.done
        told.append(json.dumps([result.observation.text, dict(result.info), wordle.state_key()]))
    assert not result.success
    assert not any(secret in text or secret.replace(" ", "") in text for text in told)


def test_5_a_slow_step_does_not_hold_up_another_session():
    entered, wake = threading.Event(), threading.Event()

    class Sleepy(toy_worlds.Counter):
        def misbehave(self, action):
            if action == "hang":
                entered.set()
                wake.wait(600)

    with live_service(Sleepy, limits=Limits(step_seconds=600)) as url:
        slow, quick = (f"{url}/v1/sessions/{start(url).content['session_id']}/step" for _ in range(2))
        thread = threading.Thread(target=call, args=("POST", slow, {"action": "hang", "turn": 1}))
        thread.start()
        assert entered.wait(240)
        for turn in range(1, 4):
            assert call("POST", quick, {"action": "wait", "turn": turn}).status == 200
        assert thread.is_alive(), "the slow step is still under way"
        wake.set()
        thread.join()


@pytest.mark.parametrize("world", [toy_worlds.Textcraft, toy_worlds.GoesOnAfterTheEnd])
def test_6_a_step_after_done_is_a_clear_error_even_if_the_world_would_take_it(world):
    with live_service(world) as url:
        body = {"task": {"env": world.name, "item_id": f"{world.name}_1"}}
        session = f"{url}/v1/sessions/{call('POST', f'{url}/v1/sessions', body).content['session_id']}"
        for turn in range(1, 9):
            action = call("GET", f"{session}/expert_action").content["action"]
            answer = call("POST", f"{session}/step", {"action": action or "up", "turn": turn})
            if answer.status != 200:
                break
        assert answer.status == 409
        assert "over" in answer.content["detail"]


def test_7_each_environment_states_its_success_rule_and_a_small_reward_can_be_a_success():
    assert all(len(world.success_rule) > 10 for world in ENVIRONMENTS.values())
    assert all(len(family.success_rule) > 10 for family in DESCRIPTORS.values())
    assert DESCRIPTORS["babyai"].success_at < 0.73
    assert DESCRIPTORS["sciworld"].success_at == 100, "a partial score is no pass"


def test_8_the_grammar_shown_is_the_one_parsed():
    for world in ENVIRONMENTS.values():
        assert all(world.grammar.parse(form.shown) for form in world.grammar.forms)
    with live_service(toy_worlds.ShowsWhatItRefuses) as url:
        check = BY_NAME["grammar shown = grammar parsed"]
        (result,) = check_server(url, ["sound_1"], checks=[check], world=toy_worlds.ShowsWhatItRefuses)
    assert result.status == "failed"


def test_9_text_is_never_evaluated_as_code():
    package = Path(openmanus_rl.__file__).parent
    calls = [
        (path.name, node.func.id)
        for room in ("envs", "agent", "data")
        for path in (package / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert [called for called in calls if called[1] in ("eval", "exec", "compile", "__import__")] == []


class CountsQuestions(toy_worlds.Textcraft):
    asked = 0

    def state_key(self):
        CountsQuestions.asked += 1
        return super().state_key()

    def expert_action(self):
        raise AssertionError("nobody asked for it")

    def render(self):
        raise AssertionError("nobody asked for it")


def test_10_a_step_computes_nothing_that_nobody_asked_for():
    with live_service(CountsQuestions) as url:
        session = call("POST", f"{url}/create").content["id"]
        before = CountsQuestions.asked
        assert "error" not in call("POST", f"{url}/step", {"id": session, "action": "up"}).content
        assert CountsQuestions.asked == before, "AgentGym's clients know no state keys"


def test_11_connections_are_kept_and_sessions_started_side_by_side():
    accepted = []

    def relay(upstream, listener):
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            accepted.append(caller)
            server = socket.create_connection((urlsplit(upstream).hostname, urlsplit(upstream).port))
            for one, other in ((caller, server), (server, caller)):
                threading.Thread(target=pump, args=(one, other), daemon=True).start()

    def pump(source, target):
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            return

    async def play(url):
        async with NativeClient([url]) as client:
            handle = await client.start(Task("counter", "counter_0"))
            for _ in range(3):
                await client.step(handle, "up")
            await client.close(handle)
            alone = len(accepted)
            await asyncio.gather(*(client.start(Task("counter", "counter_0")) for _ in range(8)))
            return alone

    with live_service(toy_worlds.Counter) as upstream, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=relay, args=(upstream, listener), daemon=True).start()
        alone = asyncio.run(play(f"http://127.0.0.1:{listener.getsockname()[1]}"))
    assert alone == 1, "an episode of five calls goes over one connection"
    assert len(accepted) > 2, "starts do not wait for each other"


def test_12_the_agent_is_told_both_grammars_of_alfworld_and_the_actions_that_are_possible():
    told = DESCRIPTORS["alfworld"].instructions
    assert "put [object] in/on [place]" in told
    assert "move [object] to [place]" in told
    assert DESCRIPTORS["alfworld"].actions_key == "available_actions"


@pytest.mark.parametrize("spoken", ["put", "move"])
@pytest.mark.parametrize("wording", ["put", "move"])
def test_12_server_and_client_play_alfworld_in_either_grammar(wording, spoken):
    guide = ENVIRONMENTS["alfworld"](wording=spoken)
    task = Task("alfworld", "alfworld_0")
    guide.reset(task)

    async def play(url):
        async with AgentGymClient("alfworld", [url]) as client:
            handle = await client.start(task)
            assert "go to " in handle.observation.text, "possible actions are shown"
            said = []
            while not handle.done:
                said.append(guide.expert_action())
                guide.step(said[-1])
                result, _ = await client.step(handle, said[-1])
            return said, result

    with live_service(ENVIRONMENTS["alfworld"], {"wording": wording}) as url:
        said, result = asyncio.run(play(url))
        shown = call("GET", f"{url}/v1/env").content
    assert any(action.startswith(spoken) for action in said)
    assert result.success
    assert all(form in shown["instructions"] for form in shown["forms"])
