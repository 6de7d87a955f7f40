"""The server reads, tells mistakes as text, and lets nobody in who should not be."""

import http.client
import json
import re
import socket
import urllib.error
import urllib.request
from importlib.resources import files
from urllib.parse import urlsplit

import pytest
from made_runs import episode, make_run, metrics_at
from serving import serving

from openmanus_rl.errors import UserError
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.viewer.run import RunView
from openmanus_rl.viewer.serve import ViewerServer
from openmanus_rl.viewer.workspace import Workspace


def ask(url, method="GET", **headers):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), headers=headers)
    response = connection.getresponse()
    return response.status, dict(response.getheaders()), response.read()


@pytest.fixture(scope="module")
def page(runs):
    with serving(runs) as server:
        yield server.url


def test_every_route_answers(page):
    for path in (
        "",
        "api/runs",
        "api/runs/maze-grpo",
        "api/runs/maze-grpo/metrics?name=success/rate&points=5",
        "api/runs/maze-grpo/episodes?outcome=success&limit=3",
        "api/runs/maze-grpo/texts?outcome=success",
        "api/runs/maze-grpo/episodes/train_step_000001.jsonl/1",
        "api/runs/maze-grpo/groups/train_step_000001.jsonl/0",
        "api/compare?run=maze-grpo&run=maze-ppo",
        "page/app.js",
        "page/vendor/uPlot.esm.js",
    ):
        assert ask(page + path)[0] == 200, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_there_is_no_way_to_write(page, method):
    assert ask(page + "api/runs", method)[0] == 405


@pytest.mark.parametrize(
    "path",
    [
        "api/runs/none",
        "api/runs/..",
        "api/runs/%2e%2e%2fetc",
        "api/runs/maze-grpo/episodes/..%2f..%2fconfig.yaml/1",
        "api/runs/maze-grpo/episodes/index.jsonl/1",
        "api/runs/maze-grpo/episodes/train_step_000001.jsonl/99",
        "api/runs/maze-grpo/episodes?first_step=x",
        "page/../app.py",
        "page/%2e%2e/app.py",
    ],
)
def test_what_is_not_there_is_told_and_nothing_outside_the_runs_is_reached(page, path):
    status, _, body = ask(page + path)
    assert status == 404
    assert b"import" not in body


def test_every_answer_forbids_what_the_page_does_not_do(page):
    for path in ("", "api/runs", "page/app.js", "nothing"):
        _, headers, _ = ask(page + path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_page_elsewhere_cannot_read_through_a_name_of_its_own(page):
    port = urlsplit(page).port
    assert ask(page + "api/runs", Host=f"evil.example:{port}")[0] == 403
    assert ask(page + "api/runs", Host=f"localhost:{port}")[0] == 200


def test_off_loopback_a_token_is_needed(runs, serve):
    server = serve(runs, host="0.0.0.0")
    port = urlsplit(server.url).port
    here = f"http://127.0.0.1:{port}/"
    assert ask(here + "api/runs")[0] == 401
    assert ask(here + "api/runs?token=wrong")[0] == 401
    status, headers, _ = ask(f"{here}?token={server.token}")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie, "a link from elsewhere opens the page; a form elsewhere finds no route that writes"
    assert ask(here + "api/runs", Cookie=cookie.split(";")[0])[0] == 200


def test_a_redirect_never_leads_elsewhere(runs, serve):
    server = serve(runs, token="secret")
    root = server.url.partition("?")[0]
    connection = http.client.HTTPConnection(urlsplit(root).netloc, timeout=20)
    connection.request("GET", "//evil.example/?token=secret")
    assert connection.getresponse().getheader("location") == "/evil.example/"


def test_a_port_that_is_taken_and_a_directory_that_is_not_there_are_told(runs, serve, tmp_path):
    port = urlsplit(serve(runs).url).port
    with pytest.raises(UserError, match="cannot be used"):
        ViewerServer(runs, port=port)
    with pytest.raises(UserError, match="no directory"):
        ViewerServer(tmp_path / "none")


def test_numbers_that_json_does_not_know_do_not_break_an_answer(runs, serve, tmp_path):
    run = tmp_path / "runs" / "odd"
    (run / "episodes").mkdir(parents=True)
    record = (runs / "maze-grpo" / "episodes" / "train_step_000001.jsonl").read_text().splitlines()[0]
    (run / "episodes" / "train_step_000001.jsonl").write_text(record.replace('"return": 0.95', '"return": NaN') + "\n")
    url = serve(tmp_path / "runs").url
    status, _, body = ask(url + "api/runs/odd/episodes/train_step_000001.jsonl/1")
    assert (status, json.loads(body, parse_constant=pytest.fail)["record"]["return"]) == (200, None)


def test_the_page_asks_nobody_else():
    """No address of another host, and no way from text to markup or code, in any of its own files."""
    sources = [entry for entry in (files("openmanus_rl.viewer") / "page").iterdir() if entry.is_file()]
    assert {"app.js", "style.css", "index.html"} <= {entry.name for entry in sources}
    for entry in sources:
        text = entry.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import|url\(", text), entry.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            entry.name
        )


def test_news_of_a_run_comes_as_it_is_written(runs, serve, tmp_path):
    run = make_run(tmp_path / "runs" / "live", steps=4)
    with urllib.request.urlopen(serve(tmp_path / "runs").url + "api/changes?run=live", timeout=20) as stream:
        assert json.loads(next_news(stream))["live"]["metrics"] == [5, 4]
        MetricsLog(run / "metrics.jsonl").append(5, metrics_at(5))
        assert json.loads(next_news(stream))["live"]["metrics"] == [6, 5]


def next_news(stream):
    for line in stream:
        if line.startswith(b"data: "):
            return line[6:]
    raise AssertionError("the stream ended")


def test_a_run_that_is_not_there_is_an_error_that_browsers_see(page):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(page + "api/runs/none", timeout=20)


@pytest.mark.parametrize("words", ["offset=inf", "limit=nan", "group=nan", "group=inf"])
def test_a_number_that_is_none_is_refused_in_words(url, words):
    status, _, body = ask(url + f"api/runs/maze-grpo/episodes?{words}")
    assert status == 404
    assert b"number" in body


def test_an_entry_that_cannot_be_looked_into_is_no_run_and_hides_none(tmp_path):
    make_run(tmp_path / "good", steps=4)
    (tmp_path / "odd").symlink_to("x" * 300)
    workspace = Workspace(tmp_path)
    assert workspace.names() == ["good"]
    with pytest.raises(UserError, match="no run odd"):
        workspace.run("odd")


def test_a_run_that_cannot_be_read_says_so_in_its_line_and_the_others_are_listed(serve, tmp_path, monkeypatch, caplog):
    for name in ("bad", "good"):
        make_run(tmp_path / "runs" / name, steps=4)
    succeed = RunView.success
    monkeypatch.setattr(RunView, "success", lambda run: 1 / 0 if run.path.name == "bad" else succeed(run))
    url = serve(tmp_path / "runs").url
    status, _, body = ask(url + "api/runs")
    bad, good = json.loads(body)["runs"]
    assert (status, bad["name"], bad["error"]) == (200, "bad", "ZeroDivisionError: division by zero")
    assert good["step"] == 4
    assert "the run bad cannot be read" in caplog.text
    status, _, body = ask(url + "api/runs/bad")
    assert (status, json.loads(body)) == (500, {"error": "ZeroDivisionError: division by zero"})


def test_the_list_of_runs_reads_no_episodes_and_no_config_twice(tmp_path, monkeypatch):
    run = RunView(make_run(tmp_path / "run", steps=4))
    first = run.brief()
    monkeypatch.setattr("yaml.load", lambda *_, **__: pytest.fail("the config was read again"))
    monkeypatch.setattr(run.episodes, "refresh", lambda *_: pytest.fail("episodes were looked at"))
    assert run.brief() == first


def test_every_loopback_address_answers_to_its_own_name(runs, serve):
    assert ask(serve(runs, host="127.0.0.2").url + "api/runs")[0] == 200


def test_the_cookie_is_found_among_odd_ones_and_is_that_of_the_port(runs, serve):
    one, other = (serve(runs, token=token) for token in ("one", "other"))
    roots = [server.url.partition("?")[0] for server in (one, other)]
    cookies = "; ".join(ask(server.url)[1]["set-cookie"].split(";")[0] for server in (one, other))
    for root in roots:
        assert ask(root + "api/runs", Cookie=f'odd[name]={{"a": 1}}; {cookies}')[0] == 200


def test_the_address_off_loopback_is_one_that_another_machine_can_open(runs, serve):
    for host in ("0.0.0.0", "::"):
        if host == "::" and not socket.has_ipv6:
            continue
        server = serve(runs, host=host)
        assert urlsplit(server.url).hostname not in ("0.0.0.0", "::")
        assert ask(server.url)[0] == 303


def test_values_that_only_yaml_knows_do_not_break_an_answer(serve, tmp_path):
    run = make_run(tmp_path / "runs" / "dated", steps=4)
    with (run / "config.yaml").open("a") as config:
        config.write("made: 2026-01-02\n2026-01-03: a key\nnumber: .inf\n")
    status, _, body = ask(serve(tmp_path / "runs").url + "api/runs/dated")
    told = json.loads(body)["config"]
    assert (status, told["made"], told["2026-01-03"], told["number"]) == (200, "2026-01-02", "a key", None)


def test_a_file_that_is_removed_while_it_is_asked_for_is_told(serve, tmp_path, monkeypatch):
    run = make_run(tmp_path / "runs" / "shrinking", steps=4)
    EpisodeLog(run / "episodes").write("train", 9, [episode(1)])
    url = serve(tmp_path / "runs").url
    assert ask(url + "api/runs/shrinking/episodes/train_step_000009.jsonl/1")[0] == 200
    (run / "episodes" / "train_step_000009.jsonl").unlink()
    monkeypatch.setattr("openmanus_rl.viewer.episodes.EpisodeTable.refresh", lambda *_: None)
    status, _, body = ask(url + "api/runs/shrinking/episodes/train_step_000009.jsonl/1")
    assert (status, b"No such file" in body) == (404, True)
