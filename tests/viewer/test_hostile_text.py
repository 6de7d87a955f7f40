"""Text of a model is hostile: none of it runs, none of it breaks the page."""

import json
import re

import pytest
from hostile_strings import hostile_strings
from made_runs import credit, episode, make_run

from openmanus_rl.agent.records import RecordDetails
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.viewer.single import episode_page

expect = pytest.importorskip("playwright.sync_api", reason="pip install playwright").expect
FILE = "train_step_000001.jsonl"
TURNS = 6
STRANGERS = "main :is(img, svg, script, style, iframe, object, embed, video, audio, base, link, meta, math)"
WHAT_IT_DID = """() => ({
    ran: window.__ran,
    polluted: ({}).polluted,
    turns: document.querySelectorAll(".message.agent").length,
    strangers: document.querySelectorAll("STRANGERS").length,
    handlers: [...document.querySelectorAll("main *")].filter(
        (element) => [...element.attributes].some((attribute) => attribute.name.startsWith("on"))).length,
    wide: document.scrollingElement.scrollWidth > innerWidth,
    raw: /[\\u0000-\\u0008\\u000b-\\u001f\\u202a-\\u202e\\u2066-\\u2069]/.test(
        document.querySelector("main").textContent),
})""".replace("STRANGERS", STRANGERS)
HARMLESS = {"ran": None, "polluted": None, "turns": TURNS, "strangers": 0, "handlers": 0, "wide": False, "raw": False}


RAW_IN_AN_ATTRIBUTE = """() => [...document.querySelectorAll("main *")].flatMap((element) => [...element.attributes])
    .filter(({ name }) => !["href", "value"].includes(name))
    .filter(({ value }) => /[\\u0000-\\u0008\\u000b-\\u001f\\u202a-\\u202e]/.test(value))
    .map(({ name }) => name)"""


def hostile_episode(number: int, texts: list[str]):
    """An episode in which whoever can say something says one of `texts`."""
    text = texts[0]
    played = episode(
        number,
        group=number // 4,
        sample=number % 4,
        actions=("up",) * TURNS,
        item_id=text[:200] or "empty",
        env=text[:50] or "empty",
        difficulty=text[:50],
        prompt=texts[-1],
        failure=text,
    )
    for turn, said in zip(played.turns, texts, strict=True):
        turn.text, turn.action, turn.observation, turn.invalid_reason, turn.state_key = said, said, said, said, said
    return played


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory):
    """A run in which every text is hostile: its name, its episodes, tokens, events, metrics and config."""
    strings = hostile_strings()
    short = [text[:300] for text in strings]
    run = make_run(tmp_path_factory.mktemp("hostile") / "<img src=x onerror=window.__ran=1>", steps=4)
    for path in (run / "episodes").iterdir():
        path.unlink()
    details = RecordDetails(pieces=lambda ids: [short[(7 * token) % len(short)] for token in ids])
    texts = [(strings + strings)[start : start + TURNS] for start in range(0, len(strings), TURNS)]
    played = [hostile_episode(number, of_episode) for number, of_episode in enumerate(texts)]
    EpisodeLog(run / "episodes", details).write("train", 1, played, credit)
    with (run / "events.jsonl").open("a") as file:
        file.writelines(json.dumps({"time": 1.7e9, "event": text, "reason": text}) + "\n" for text in short)
    started = {"time": 1.7e9, "event": "started", "preset": short[9], "changed": {text: [text, text] for text in short}}
    (run / "events.jsonl").write_text(json.dumps(started) + "\n" + (run / "events.jsonl").read_text())
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 5, "time": 1.7e9, **{text or "empty": 1.0 for text in short[:80]}}) + "\n")
    with (run / "config.yaml").open("a") as file:
        file.write(json.dumps({"hostile": short[:100]})[1:-1] + "\n")
    return run


def open_page(page, url):
    page.goto(url)
    expect(page.locator("h1")).to_contain_text("<img src=x")


def go(page, run, *rest):
    page.evaluate(
        "parts => { location.hash = '#/' + parts.map(encodeURIComponent).join('/'); }", ["run", run.name, *rest]
    )


def test_none_of_200_strings_runs_or_breaks_an_episodes_page(page, serve, hostile_run):
    open_page(page, serve(hostile_run).url)
    for number in range(1, -(-len(hostile_strings()) // TURNS) + 1):
        go(page, hostile_run, "episode", FILE, str(number))
        expect(page.locator(".episode .command code")).to_have_text(re.compile(rf":{number}'?$"))
        assert page.evaluate(WHAT_IT_DID) == HARMLESS, f"episode {number}"


def test_the_other_views_hold_too(page, serve, hostile_run):
    open_page(page, serve(hostile_run).url)
    for rest, seen in [((), ".hero"), (("episodes",), ".virtual .episode-row"), (("group", FILE, "2"), "td.way")]:
        go(page, hostile_run, *rest)
        expect(page.locator(seen).first).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        assert page.evaluate("window.__ran") is None
        assert page.locator(STRANGERS).count() == 0
        assert page.evaluate(RAW_IN_AN_ATTRIBUTE) == []
        assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", page.locator("main").text_content())
        assert (
            page.evaluate("Math.max(...[...document.querySelectorAll('[title]')].map((at) => at.title.length))") < 9000
        )


def test_a_megabyte_on_one_line_is_cut_with_a_control_that_shows_more(page, serve, hostile_run):
    number, turn = divmod(hostile_strings().index("a" * (1 << 20)), TURNS)
    open_page(page, serve(hostile_run).url)
    go(page, hostile_run, "episode", FILE, str(number + 1))
    world = page.locator(".message.world").nth(1 + turn)
    expect(world.locator(".more")).to_contain_text("1,046,576 characters are left")
    world.locator(".more").click()
    expect(world.locator(".more")).to_contain_text("1,026,576 characters are left")


def test_single_files_of_hostile_episodes_run_nothing(page, tmp_path, hostile_run):
    lines = (hostile_run / "episodes" / FILE).read_bytes().split(b"\n")[:-1]
    for line in lines[::4]:
        record = json.loads(line) | {"scores": dict.fromkeys(hostile_strings()[:20], 1.0)}
        (tmp_path / "one.html").write_text(episode_page(record), encoding="utf-8")
        page.goto(f"file://{tmp_path}/one.html")
        expect(page.locator(".message.agent")).to_have_count(TURNS)
        assert page.evaluate(WHAT_IT_DID) == HARMLESS
