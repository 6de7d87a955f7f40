"""Options: what a world takes, and what whoever reaches its server may set. Neither a path nor code."""

import inspect
import json
from pathlib import Path
from typing import Annotated, Literal, Optional
from urllib.parse import urlsplit

import pytest
import toy_worlds
from live_service import call, live_service
from pydantic import Field
from test_metrics import metrics

from openmanus_rl.envs.options import refused_options, session_options
from openmanus_rl.envs.registry import ENVIRONMENTS, environment_class, make_environment
from openmanus_rl.errors import UserError

TASK = {"env": "counter", "item_id": "counter_0"}


class Picky(toy_worlds.Counter):
    """Has an option of every sort."""

    session_options = None

    def __init__(
        self,
        goal: int = 3,
        share: float = 0.5,
        loud: bool = False,
        tone: Literal["high", "low"] = "low",
        limit: int | None = None,
        seats: Optional[Annotated[int, Field(ge=1)]] = None,  # noqa: UP045 - both spellings
        book: str = "",
        pair: tuple[int, int] = (1, 2),
        shelf: Path | None = None,
        whatever=None,
        **more: int,
    ) -> None:
        super().__init__(goal)


@pytest.fixture(scope="module")
def counter():
    with live_service(toy_worlds.Counter, {"book": "/etc/hosts"}) as url:
        yield url


def opened(url, options):
    return call("POST", f"{url}/v1/sessions", {"task": TASK, "options": options})


def test_a_caller_cannot_make_a_server_run_code(tmp_path):
    trace = tmp_path / "trace"
    options = {"id": "subprocess:run", "make": {"args": f"touch {trace}", "shell": True}, "actions": []}
    with live_service(environment_class("gym"), {"id": "FrozenLake-v1"}) as url:
        refused = call("POST", f"{url}/v1/sessions", {"options": options})
    assert refused.status == 422
    assert refused.content["detail"].startswith("actions, id, make: only who starts the server")
    assert not trace.exists()


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_no_world_lets_a_caller_name_a_path_a_module_or_a_bound_of_the_machine(name):
    allowed = session_options(environment_class(name))
    kept = {"id", "make", "wrapper", "observation", "num_products", "simulators", "query_seconds"} - (
        {"observation"} if name == "maze" else set()
    )
    assert allowed <= set(inspect.signature(environment_class(name)).parameters)
    assert "max_steps" in allowed or name == "wordle"
    assert (
        not {option for option in allowed if option.endswith(("_dir", "_file", "_list", "mappings"))} | allowed & kept
    )


def test_numbers_truth_values_and_choices_are_a_caller_s_unless_the_class_says_otherwise():
    assert session_options(Picky) == {"goal", "share", "loud", "tone", "limit", "seats"}
    assert session_options(toy_worlds.Counter) == {"goal", "wording"}


def test_a_caller_may_repeat_what_the_server_has_anyway(counter):
    assert opened(counter, {"book": "/etc/hosts", "goal": 3}).status == 201
    refused = opened(counter, {"book": "/etc/passwd"})
    assert (refused.status, refused.content["title"]) == (422, "Not yours to set")


@pytest.mark.parametrize("value", ["x", [1], None, 1.5, True, {}, "3"])
def test_a_value_of_the_wrong_type_is_the_caller_s_mistake_and_no_crash(counter, value):
    refused = opened(counter, {"goal": value})
    assert refused.status == 422
    assert refused.content["detail"] == f"counter: goal is {value!r}. Input should be a valid integer."
    assert metrics(counter)['failures_total{cause="crashed"}'] == 0


@pytest.mark.parametrize(
    "options",
    [
        {"share": 1},
        {"tone": "high"},
        {"limit": None},
        {"pair": [3, 4]},
        {"pair": (3, 4)},
        {"shelf": "a/b"},
        {"whatever": object()},
        {"others": 5},
    ],
)
def test_values_of_the_right_type_are_taken_as_python_and_as_json(options):
    assert refused_options(Picky, options) is None


@pytest.mark.parametrize(
    "options", [{"share": "1"}, {"loud": 1}, {"tone": "middle"}, {"seats": 0}, {"pair": [1]}, {"book": 3}]
)
def test_values_of_another_type_are_refused_by_name(options):
    assert next(iter(options)) in refused_options(Picky, options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("maze", {"size": "abc"}),
        ("wordle", {"max_guesses": "x"}),
        ("babyai", {"levels": 7}),
        ("searchqa", {"top_k": 1.5}),
        ("todo", {"max_steps": None}),
        ("sqlgym", {"query_seconds": "soon"}),
        ("alfworld", {"task_types": 3}),
        ("maze", {"colour": "red"}),
    ],
)
def test_a_world_in_this_process_refuses_them_as_a_user_s_mistake(name, options):
    with pytest.raises(UserError, match=next(iter(options))):
        make_environment(name, **options)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.org"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Host": "example.org"},
        {"Host": "127.0.0.1.example.org:36001"},
        {"Host": "["},
    ],
)
def test_a_web_page_opens_no_session(counter, headers):
    simple = {"Content-Type": "text/plain", **headers}
    refused = call("POST", f"{counter}/v1/sessions", raw=json.dumps({"task": TASK}).encode(), headers=simple)
    assert (refused.status, refused.content["title"]) == (403, "Not for web pages")


def test_loopback_by_any_of_its_names_is_let_in(counter):
    port = urlsplit(counter).port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "localhost"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert call("POST", f"{counter}/v1/sessions", {"task": TASK}, headers).status == 201


def test_with_a_token_a_server_goes_by_any_name():
    with live_service(toy_worlds.Counter, token="s3cret") as url:
        headers = {"Host": "worlds.example.org", "Authorization": "Bearer s3cret"}
        assert call("POST", f"{url}/v1/sessions", {"task": TASK}, headers).status == 201
