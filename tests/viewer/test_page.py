"""The page in a real browser: what someone who opens it can see and do."""

import json
import re

import pytest
from made_runs import credit, episode, make_run, metrics_at, pieces, validation_at

from openmanus_rl.agent.records import RecordDetails, episode_line
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.tracking.metrics import MetricsLog

expect = pytest.importorskip("playwright.sync_api", reason="pip install playwright").expect
EPISODE = "#/run/maze-grpo/episode/train_step_000002.jsonl/1"


def test_a_run_shows_its_success_its_charts_its_events_and_what_differs_from_the_preset(page, url):
    page.goto(url + "#/run/maze-grpo")
    expect(page.locator("h1")).to_have_text("maze-grpo")
    expect(page.locator(".tile").first).to_contain_text("75.0 %")
    expect(page.locator(".hero .chart")).to_have_attribute("aria-label", re.compile("held out 75.0 %"))
    titles = page.locator(".chart-title").all_inner_texts()
    assert {"Success", "Return", "Entropy", "Invalid actions", "Sampled tokens a second"} <= set(titles)
    assert "Staleness" not in titles, "what the run does not measure has no chart"
    expect(page.locator("details[data-name=events]")).to_contain_text("the gradient norm rose")
    expect(page.locator("details[data-name=preset]")).to_contain_text("trainer.steps")
    expect(page.locator("details[data-name=breakdown]")).to_contain_text("hard")


def test_a_step_appears_as_it_is_written(page, serve, tmp_path):
    run = make_run(tmp_path / "runs" / "live", steps=8)
    page.goto(serve(tmp_path / "runs").url + "#/run/live")
    expect(page.locator(".progress-text")).to_contain_text("step 8 of 8")
    expect(page.locator("html")).to_have_attribute("data-live", "yes")
    MetricsLog(run / "metrics.jsonl").append(9, metrics_at(9) | validation_at(9, 0.99))
    EpisodeLog(run / "episodes").write("train", 9, [episode(1)])
    expect(page.locator(".progress-text")).to_contain_text("step 9 of 8", timeout=2000)
    expect(page.locator(".tile").first).to_contain_text("99.2 %")


def test_a_step_that_is_written_while_the_page_opens_is_shown_too(page, serve, tmp_path):
    """Between the answer that the page is drawn from and the first news."""
    run = make_run(tmp_path / "runs" / "live", steps=8)

    def write_then_listen(route):
        if not written:
            written.append(True)
            MetricsLog(run / "metrics.jsonl").append(9, metrics_at(9))
        route.continue_()

    written: list[bool] = []
    page.route("**/api/changes*", write_then_listen)
    page.goto(serve(tmp_path / "runs").url + "#/run/live")
    expect(page.locator(".progress-text")).to_contain_text("step 9 of 8", timeout=2000)


def test_keys_skip_to_the_content_and_walk_along_a_chart(page, url):
    page.goto(url + "#/run/maze-grpo")
    expect(page.locator(".hero .chart")).to_be_visible()
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    expect(page.locator("h1")).to_have_text("maze-grpo")
    page.locator(".hero .chart").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".hero .readout")).to_contain_text("step 11")
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="Show all steps")).to_be_visible()
    expect(page.locator(".hero .chart")).to_be_focused()


def test_a_checkpoint_is_told_once_and_does_not_hide_what_happened_there(page, url):
    page.goto(url + "#/run/maze-grpo")
    page.locator(".hero .chart").focus()
    page.keyboard.press("End")
    told = page.locator(".hero .readout .accent").all_inner_texts()
    assert len(told) == len(set(told))


def test_coming_back_to_the_list_finds_it_where_it_was(page, url):
    page.goto(url + "#/run/maze-grpo/episodes")
    page.locator(".virtual").focus()
    page.keyboard.press("End")
    expect(page.locator(".episode-row.selected")).to_be_visible()
    top = page.locator(".virtual").evaluate("list => list.scrollTop")
    assert top > 0
    page.keyboard.press("Enter")
    expect(page.locator("article.episode")).to_be_visible()
    page.go_back()
    expect(page.locator(".episode-row.selected")).to_be_visible()
    assert page.locator(".virtual").evaluate("list => list.scrollTop") == top


def test_the_list_of_runs_keeps_the_focus_when_it_is_drawn_anew(page, serve, tmp_path):
    for name in ("one", "two"):
        make_run(tmp_path / "runs" / name, steps=4)
    page.goto(serve(tmp_path / "runs").url)
    page.get_by_role("link", name="two", exact=True).focus()
    make_run(tmp_path / "runs" / "three", steps=4)
    expect(page.locator("tbody tr")).to_have_count(3)
    assert page.evaluate("document.activeElement.tagName") == "A"


def test_an_address_that_the_page_did_not_make_is_refused_in_words(browser, url):
    page = browser.new_page()
    page.goto(url + "#/run/%E0%A4")
    expect(page.get_by_role("alert")).to_contain_text("cannot be shown")
    page.close()


def test_a_run_that_begins_while_the_list_is_open_appears_in_it(page, serve, tmp_path):
    (tmp_path / "runs").mkdir()
    page.goto(serve(tmp_path / "runs").url)
    expect(page.locator(".empty")).to_contain_text("no run here yet")
    make_run(tmp_path / "runs" / "new", steps=4)
    make_run(tmp_path / "runs" / "newer", steps=4)
    expect(page.locator("table")).to_contain_text("newer")


def test_a_chart_can_be_looked_at_more_closely_and_by_time(page, url):
    page.goto(url + "#/run/maze-grpo")
    plot = page.locator(".hero .u-over")
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    expect(page.locator(".hero .readout")).to_contain_text("step 4")
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60)
    page.mouse.up()
    page.get_by_role("button", name="Show all steps").click()
    page.get_by_role("button", name="by step").click()
    expect(page.get_by_role("button", name="by time")).to_be_visible()
    page.get_by_label("Add a chart").select_option("actor/grad_norm")
    expect(page.locator(".chart-title", has_text="actor/grad_norm")).to_be_visible()


def test_filters_narrow_the_list_and_stand_in_the_address(page, url):
    page.goto(url + "#/run/maze-grpo/episodes")
    count = page.locator(".title-row [role=status]")
    expect(count).to_have_text("96 episodes")
    page.get_by_label("Outcome").select_option("success")
    expect(count).to_have_text("36 of 96 episodes")
    page.get_by_label("Kind").select_option("train")
    expect(count).to_have_text("24 of 96 episodes")
    page.get_by_label("first step").fill("11")
    expect(count).to_have_text("4 of 96 episodes")
    page.reload()
    expect(count).to_have_text("4 of 96 episodes")
    page.get_by_role("button", name="Clear").click()
    expect(count).to_have_text("96 episodes")
    page.get_by_label("Text").fill("action: RIGHT")
    expect(count).to_have_text("0 of 96 episodes")
    page.get_by_label("Text").fill("action: LEFT")
    expect(count).to_have_text("48 of 96 episodes")


def test_the_list_is_walked_and_opened_with_the_keyboard(page, url):
    page.goto(url + "#/run/maze-grpo/episodes?kind=train")
    expect(page.locator(".virtual .episode-row").first).to_contain_text("maze_12")
    page.keyboard.press("/")
    expect(page.get_by_label("Text")).to_be_focused()
    page.locator(".virtual").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".episode h1")).to_have_text("maze_12")
    assert page.url.endswith("train_step_000012.jsonl/2")
    page.keyboard.press("[")
    page.wait_for_url("**/train_step_000012.jsonl/1")


def test_a_long_list_holds_only_the_rows_that_are_seen(page, serve, tmp_path):
    EpisodeLog(tmp_path / "run" / "episodes").write("validation", 1, [episode(number) for number in range(3000)])
    page.goto(serve(tmp_path).url + "#/run/run/episodes?order=item_id")
    rows = page.locator(".virtual .episode-row")
    expect(rows.first).to_contain_text("maze_999")
    page.locator(".virtual").evaluate("list => { list.scrollTop = list.scrollHeight; }")
    expect(rows.last).to_contain_text("maze_0")
    assert rows.count() < 100


def test_an_episode_is_a_conversation_with_its_actions_rewards_states_and_times(page, url):
    page.goto(url + EPISODE)
    expect(page.locator(".episode-header .badge")).to_contain_text("success")
    expect(page.locator(".message.agent")).to_have_count(2)
    facts = page.locator(".turn-facts").nth(1)
    for said in ("✓ up", "reward +1", "state 1,0", "world 2 ms"):
        expect(facts).to_contain_text(said)
    expect(page.locator(".message.world").nth(1)).to_contain_text("You are at 0.")
    expect(page.locator(".command code")).to_have_text(re.compile(r"openmanus-rl replay .*train_step_000002\.jsonl:1$"))


def test_what_trained_is_told_apart_at_a_glance(page, url):
    page.goto(url + EPISODE)
    expect(page.locator(".tally")).to_contain_text("6 tokens trained · 8 tokens context")
    page.get_by_role("button", name="All tokens").click()
    page.get_by_label("Colour by").select_option("trained")
    tokens = page.locator(".stream .token")
    kinds = tokens.evaluate_all("tokens => tokens.map(token => token.className.split(' ')[1])")
    assert kinds == ["context"] * 4 + (["trained"] * 3 + ["context"] * 2) * 2
    page.goto(url + "#/run/maze-grpo/episode/validation_step_000004.jsonl/1")
    expect(page.locator(".tally")).to_contain_text("6 tokens sampled, not trained")


def test_a_token_tells_its_numbers_on_hover_and_on_focus(page, url):
    page.goto(url + EPISODE)
    card = page.locator(".token-card")
    page.locator(".conversation .token").nth(1).hover()
    for said in ("101 at 5", "sampled, trained", "-1.5 (p 22.3 %)", "-1.51", "+0.01", "+0.5", "version 7"):
        expect(card).to_contain_text(said)
    page.mouse.move(0, 0)
    expect(card).to_be_hidden()
    page.locator(".tokens").first.focus()
    page.keyboard.press("Home")
    expect(card).to_contain_text("100 at 4")
    page.keyboard.press("ArrowRight")
    expect(card).to_contain_text("101 at 5")
    page.keyboard.press("End")
    expect(card).to_contain_text("102 at 6")


def test_a_group_shows_where_its_episodes_part(page, url):
    page.goto(url + EPISODE)
    page.get_by_role("link", name="Group of 3, side by side").click()
    expect(page.locator("p.muted").first).to_contain_text("go together for 1 turn and part at turn 2")
    ways = page.locator("td.way").evaluate_all("cells => cells.map(cell => cell.dataset.way)")
    assert ways == ["0", "0", "0", "0", "1", "2"]


def test_a_comparison_says_whether_the_difference_is_noise(page, url):
    page.goto(url)
    for name in ("maze-grpo", "maze-ppo"):
        page.get_by_label(f"Compare {name}").check()
    page.get_by_role("link", name="Compare 2 runs").click()
    expect(page.locator("table").first).to_contain_text("worse, outside the noise")
    expect(page.locator("table").first).to_contain_text("−50.0 points")
    expect(page.locator("details")).to_contain_text("trainer.seed")
    expect(page.locator(".hero .readout")).to_contain_text("maze-ppo")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone_in_either_colour(browser, url, scheme):
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    colours = set()
    for path in ("", "#/run/maze-grpo", "#/run/maze-grpo/episodes", EPISODE, "#/compare?run=maze-grpo&run=maze-ppo"):
        page.goto(url + path)
        expect(page.locator("h1").first).to_be_visible()
        page.wait_for_load_state("networkidle") if path == EPISODE else page.wait_for_timeout(150)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 390, path
        colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == {"rgb(246, 246, 243)" if scheme == "light" else "rgb(16, 18, 22)"}
    context.close()


def test_a_damaged_directory_opens_and_says_so(page, serve, tmp_path):
    run = make_run(tmp_path / "runs" / "cut", steps=4)
    for path in (run / "metrics.jsonl", run / "episodes" / "train_step_000002.jsonl"):
        path.write_bytes(path.read_bytes()[:-30])
    page.goto(serve(tmp_path / "runs").url + "#/run/cut")
    expect(page.locator(".notice")).to_contain_text("train_step_000002.jsonl: line 6 is cut off")
    expect(page.locator(".progress-text")).to_contain_text("step 3 of 4")


def test_an_address_that_leads_nowhere_says_so(browser, url):
    page = browser.new_page()
    for path in ("#/run/none", "#/nowhere", "#/run/maze-grpo/episode/none.jsonl/1"):
        page.goto(url + path)
        expect(page.get_by_role("alert")).to_be_visible()
    page.close()


def test_the_single_file_shows_the_same_view(page, tmp_path):
    from openmanus_rl.viewer.single import episode_page

    played = episode(3, success=True, observation="</script><script>window.__ran = 1</script>")
    line = episode_line(played, RecordDetails(pieces=pieces, credit=credit, step=5))
    (tmp_path / "one.html").write_text(episode_page(json.loads(line)))
    page.goto(f"file://{tmp_path}/one.html")
    expect(page.locator(".message.agent")).to_have_count(2)
    expect(page.locator(".message.world").nth(1)).to_contain_text("</script><script>")
    page.locator(".token").nth(5).hover()
    expect(page.locator(".token-card")).to_contain_text("sampled, trained")
    assert page.evaluate("window.__ran") is None
