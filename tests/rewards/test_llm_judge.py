"""The judge against a real HTTP server: its scores, its time-out, its budget, and every way to say nothing."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.config.schema import AlgorithmConfig, JudgeConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.rewards import RewardError, RewardManager
from openmanus_rl.rewards.llm_judge import KEY_VARIABLE, read_score


class Endpoint:
    """An OpenAI-compatible endpoint that answers with what `answers` holds, the last one again and again."""

    def __init__(self):
        self.answers: list[tuple[int, object]] = [(200, said("Score: 1"))]
        self.delay = 0.0
        self.requests: list[dict] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append(
                    {"path": self.path, "key": self.headers.get("Authorization"), "body": json.loads(body)}
                )
                time.sleep(endpoint.delay)
                status, answer = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
                content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                """Not into the tests' output."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def manager(self, score_fn="llm_judge", **judge):
        config = AlgorithmConfig(reward_score_fn=score_fn, reward_judge={"url": self.url, "model": "wise", **judge})
        return RewardManager(config, max_episode_tokens=100)


def said(text):
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


def played() -> Episode:
    turn = Turn(1, [5], [0.0], [0], "Action: up", "up", None, None, observation="a wall", reward=0.25)
    task = Task("maze", "maze_1", prompt="Reach the goal.", ground_truth="up")
    return Episode(task, 0, 0, 0, [Segment([1, 5], 1, [turn])], StopReason.DONE)


def test_the_judge_sees_the_episode_and_its_score_is_the_reward(endpoint, monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    endpoint.answers = [(200, said("It walked. Score: 0.2\nNo, rather\nScore: 0.75"))]
    episode = played()
    (on_tokens,) = endpoint.manager()(episode)
    assert sum(reward for _, reward in on_tokens) == 0.75
    assert episode.scores == {"score": 0.75}
    (request,) = endpoint.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["key"] == "Bearer secret"
    assert request["body"]["model"] == "wise"
    shown = request["body"]["messages"][1]["content"]
    assert all(part in shown for part in ("Reach the goal.", "Expected: up", "Action: up", "a wall", "done"))


def test_it_is_one_of_several_rewards(endpoint):
    episode = played()
    endpoint.manager("agentgym + 0.5*llm_judge")(episode)
    assert episode.scores == {"score": 0.75, "agentgym": 0.25, "llm_judge": 1.0}


def test_an_overloaded_endpoint_is_asked_again(endpoint):
    endpoint.answers = [(429, "later"), (503, "later"), (200, said("Score: 0.5"))]
    episode = played()
    endpoint.manager()(episode)
    assert episode.scores["score"] == 0.5
    assert len(endpoint.requests) == 3


def test_the_time_out_is_an_error_and_not_a_score(endpoint):
    endpoint.delay = 2.0
    began = time.monotonic()
    with pytest.raises(RewardError, match=r"did not answer in 0\.3 s"):
        endpoint.manager(timeout=0.3)(played())
    assert time.monotonic() - began < 1.8


def test_a_spent_budget_is_an_error_and_nothing_more_is_asked(endpoint):
    manager = endpoint.manager(budget=2)
    manager(played())
    manager(played())
    with pytest.raises(RewardError, match="budget of 2 requests is spent"):
        manager(played())
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, said("I like it.")), "names no score"),
        ((200, said("Score: 7")), "score '7' is not a number between 0 and 1"),
        ((200, {"choices": []}), "answered with no message"),
        ((200, b"<html>"), "answered with no JSON"),
        ((401, {"error": "who are you?"}), "refused with status 401"),
    ],
)
def test_what_is_no_score_is_an_error(endpoint, answer, message):
    endpoint.answers = [answer]
    with pytest.raises(RewardError, match=message):
        endpoint.manager()(played())


def test_an_endpoint_that_is_not_there_is_said(endpoint):
    manager = endpoint.manager(url="http://127.0.0.1:9/v1")
    with pytest.raises(RewardError, match="cannot be reached"):
        manager(played())


def test_a_judge_without_a_model_is_refused_before_anything_is_played(endpoint):
    with pytest.raises(UserError, match="has no model to ask"):
        endpoint.manager(model=None)
    RewardManager(AlgorithmConfig(reward_judge=JudgeConfig()), 100)


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Score: 1", 1),
        ("**Score:** 0.5", 0.5),
        ("Score: **0.5**.", 0.5),
        ("score = 0", 0),
        ("Score - 0.25", 0.25),
        ("Score: .1", 0.1),
        ("Score: 1e-3", 0.001),
        ("Score: 0.8/1", 0.8),
        ("Score: 0.8, since it lost its way. The score is low for that.", 0.8),
        ('{"score":0.7,"why":"slow"}', 0.7),
    ],
)
def test_scores_are_read_as_judges_write_them(answer, score):
    assert read_score(answer) == score


@pytest.mark.parametrize(
    "score",
    ["-0.5", "-1", "−0.5", "1/10", "1%", "0,5", "1 / 10", "1 out of 10", "1 %", "0.5-0.7", "1.5", "10", "1e3", "0.1.2"],
)
def test_what_is_no_number_from_0_to_1_is_never_read_as_one(score):
    with pytest.raises(UserError, match=r"is not a number between 0 and 1"):
        read_score(f"It began well, Score: 0.2 at first.\nScore: {score}")
