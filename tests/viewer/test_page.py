"""The page in a real browser: what someone who opens it can see and do."""

import json
import re
import shutil

import pytest
from made_runs import credit, episode, make_run, metrics_at, pieces, validation_at
from serving import serving

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.records import RecordDetails, episode_line
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.tracking.metrics import MetricsLog

expect = pytest.importorskip("playwright.sync_api", reason="pip install playwright").expect
LONG_NAME = "maze_" + "a_word_" * 20 + "grpo-3"
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
    readout = page.locator(".hero .readout")
    page.locator(".hero .chart").focus()
    page.keyboard.press("Home")
    for _ in range(12):
        if "step 4" in readout.inner_text():
            break
        page.keyboard.press("ArrowRight")
    told = readout.locator(".accent").all_inner_texts()
    assert any("checkpoint" in each for each in told)
    assert len(told) == len(set(told))


def test_coming_back_to_the_list_finds_it_where_it_was(page, url):
    page.goto(url + "#/run/maze-grpo/episodes")
    expect(page.locator("a.episode-row.selected")).to_be_visible()
    page.locator(".virtual").focus()
    page.keyboard.press("End")
    expect(page.locator("a.episode-row.selected")).to_be_visible()
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


def test_a_badge_says_what_the_filter_of_outcomes_says(page, serve, tmp_path):
    played = [episode(number, stop_reason=reason) for number, reason in enumerate(StopReason)]
    EpisodeLog(tmp_path / "run" / "episodes").write("train", 1, played)
    url = serve(tmp_path).url
    for outcome, label, is_sample in [("failed", "! failed", False), ("miss", "✗ no success", True)]:
        page.goto(f"{url}#/run/run/episodes?outcome={outcome}")
        badges = page.locator(".virtual .badge")
        expect(badges).to_have_text([label] * sum(reason.is_sample == is_sample for reason in StopReason))


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
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".command button").click()
    expect(page.locator(".command button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator(".command code").inner_text()


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
    for said in ("101 at 5", "sampled, trained", "mask1", "−1.5 (p 22.3 %)", "−1.51", "+0.01", "+0.5", "version 7"):
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
    readout = page.locator(".hero .readout")
    expect(readout).to_contain_text("maze-ppo")
    for axis, where in [("by step", "step 4"), ("by time", re.compile(r"after [\d.]+ m?s"))]:
        expect(page.get_by_role("button", name=axis)).to_be_visible()
        page.locator(".hero .chart").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        expect(readout).to_contain_text(where)
        page.locator(".toolbar button").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone_in_either_colour(browser, serve, tmp_path, scheme):
    for name in ("maze-grpo", LONG_NAME):
        make_run(tmp_path / "runs" / name)
    url = serve(tmp_path / "runs").url
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    colours = set()
    long = f"#/run/{LONG_NAME}"
    compared = f"#/compare?run=maze-grpo&run={LONG_NAME}"
    for path in ("", "#/run/maze-grpo", "#/run/maze-grpo/episodes", EPISODE, long, f"{long}/episodes", compared):
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


@pytest.fixture
def charts(page, url):
    """Call a function of charts.js in the page."""
    page.goto(url)

    def call(name, *given):
        asked = "async ([name, given]) => (await import('/page/charts.js'))[name](...given)"
        return page.evaluate(asked, [name, list(given)])

    return call


def drawn(page, options):
    """A chart of its own on a blank place: the texts on its canvas, and its tallest column of pure red."""
    return page.evaluate(
        """async (options) => {
            const { chart } = await import("/page/charts.js");
            const texts = [];
            const { fillText } = CanvasRenderingContext2D.prototype;
            CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
                texts.push(text);
                return fillText.call(this, text, ...rest);
            };
            const range = options.range ? () => options.range : undefined;
            const figure = chart(document.body, { ...options, range });
            await new Promise((done) => setTimeout(done, 100));
            CanvasRenderingContext2D.prototype.fillText = fillText;
            const canvas = figure.querySelector("canvas");
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const isRed = (at) => data[at] > 240 && data[at + 1] < 20 && data[at + 2] < 20 && data[at + 3] > 240;
            const heights = Array.from({ length: canvas.width }, (_, x) => {
                let count = 0;
                for (let y = 0; y < canvas.height; y += 1) count += isRed(4 * (y * canvas.width + x));
                return count;
            });
            return { texts, tallest: Math.max(...heights), heights };
        }""",
        options,
    )


def test_the_axis_of_parts_of_a_whole_starts_at_zero(page, url):
    page.goto(url)
    lines = [{"label": name, "x": [1, 2], "y": [50, 51], "colour": "#ff0000"} for name in "ab"]
    assert "0" in drawn(page, {"title": "t", "lines": lines, "stacked": True})["texts"]
    assert "0" not in drawn(page, {"title": "t", "lines": lines})["texts"]


def test_where_no_part_is_measured_nothing_is_stacked(charts):
    assert charts("stack", [[None, 1, 1], [None, 2, None]]) == [[None, 1, 1], [None, 3, 1]]


def test_a_part_that_is_measured_now_and_then_stands_on_the_others(charts):
    lines = charts("aligned", [{"x": [10, 20, 30], "y": [1, 1, 1]}, {"x": [0, 15, 30], "y": [5, 6, 7]}])
    assert [line["x"] for line in lines] == [[10, 20, 30], [0, 20, 30]]


def test_a_lone_measurement_is_one_dot_with_its_interval_as_a_bar(page, url):
    page.goto(url)

    def line(y, **more):
        return {"label": "l", "x": [4], "y": [y], "colour": "#ff0000", **more}

    lines = [line(0.25, hidden=True), line(0.75, hidden=True), line(0.5)]
    alone = drawn(page, {"title": "t", "lines": lines, "range": [0, 1]})
    assert 3 <= alone["tallest"] <= 8, "the edges are no dots"
    with_bar = drawn(page, {"title": "t", "lines": lines, "bands": [[0, 1, lines[2]]], "range": [0, 1]})
    assert with_bar["tallest"] > 60


def test_ticks_tell_their_values_apart_and_times_are_of_24_hours(charts):
    near = charts("ticks", [1.00e-6, 1.02e-6, 1.04e-6])
    assert len(set(near)) == 3
    assert charts("ticks", [-0.5, 0, 0.5]) == ["−0.5", "0", "0.5"]
    times = charts("clockTicks", None, [1.7e9, 1.7e9 + 6 * 3600, 1.7e9 + 12 * 3600], 0, 0, 3600)
    assert all(re.match(r"\d\d:\d\d(\n|$)", time) for time in times), times


def test_no_world_and_no_difficulty_is_left_out(page, serve, tmp_path):
    run = make_run(tmp_path / "runs" / "many", steps=4)
    parts = [f"w{number}" for number in range(11)] + ["w3/easy", "w3/hard", "w4/only"]
    MetricsLog(run / "metrics.jsonl").append(5, {f"val/success/{part}/rate": 0.5 for part in parts})
    page.goto(serve(tmp_path / "runs").url + "#/run/many")
    by_world = page.locator(".chart", has=page.get_by_text("Held-out success by world", exact=True))
    for number in range(11):
        expect(by_world.locator(".readout")).to_contain_text(f"w{number} 50.0 %")
    by_difficulty = page.locator(".chart", has=page.get_by_text("Held-out success in w3 by difficulty"))
    expect(by_difficulty.locator(".readout")).to_contain_text("easy 50.0 %hard 50.0 %")
    expect(page.locator(".chart-title", has_text="in w4")).to_have_count(0)


def test_filters_follow_a_live_run(page, serve, tmp_path):
    run = tmp_path / "runs" / "live"
    EpisodeLog(run / "episodes").write("train", 1, [episode(1, env="maze")])
    page.goto(serve(tmp_path / "runs").url + "#/run/live/episodes")
    expect(page.locator("[name=kind]")).to_be_hidden()
    page.get_by_label("Outcome").select_option("miss")
    page.get_by_label("Outcome").focus()
    other = episode(2, env="other", difficulty="hard", stop_reason=StopReason.MAX_TURNS)
    EpisodeLog(run / "episodes").write("validation", 2, [other, episode(3, difficulty="easy")])
    for name, count in [("kind", 2), ("env", 2), ("difficulty", 2), ("stop_reason", 2)]:
        expect(page.locator(f"[name={name}]")).to_be_visible()
        expect(page.locator(f"[name={name}] option")).to_have_count(count + 1)
    expect(page.get_by_label("Outcome")).to_be_focused()
    page.locator("[name=kind]").select_option("train")
    page.locator("[name=kind]").focus()
    EpisodeLog(run / "episodes").write("greedy", 3, [episode(1)])
    expect(page.locator("[name=kind] option")).to_have_count(4)
    expect(page.locator("[name=kind]")).to_have_value("train")
    expect(page.locator("[name=kind]")).to_be_focused()


def test_news_does_not_move_the_choice_to_another_episode(page, serve, tmp_path):
    run = tmp_path / "runs" / "live"
    EpisodeLog(run / "episodes").write("train", 1, [episode(number) for number in range(9)])
    page.goto(serve(tmp_path / "runs").url + "#/run/live/episodes")
    expect(page.locator("a.episode-row.selected")).to_be_visible()
    page.locator(".virtual").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".episode-row.selected")).to_contain_text("maze_1")
    EpisodeLog(run / "episodes").write("train", 2, [episode(100 + number) for number in range(3)])
    expect(page.locator(".title-row [role=status]")).to_have_text("12 episodes")
    expect(page.locator(".episode-row.selected")).to_contain_text("maze_1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/train_step_000001.jsonl/2")


def test_texts_are_read_before_someone_searches(page, url):
    with page.expect_response("**/api/runs/maze-ppo/texts?kind=train") as asked:
        page.goto(url + "#/run/maze-ppo/episodes?kind=train")
    assert asked.value.json() == {"done": True}


def test_a_comparison_of_live_runs_keeps_what_is_looked_at(page, serve, tmp_path):
    for name in ("one", "two"):
        make_run(tmp_path / "runs" / name, steps=8)
    page.goto(serve(tmp_path / "runs").url + "#/compare?run=one&run=two")
    hero = page.locator(".hero .chart")
    box = page.locator(".hero .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60)
    page.mouse.up()
    hero.focus()
    MetricsLog(tmp_path / "runs" / "one" / "metrics.jsonl").append(20, metrics_at(9) | validation_at(20, 0.99))
    expect(hero).to_have_attribute("aria-label", re.compile("one 99.2 %"))
    expect(hero).to_be_focused()
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 50)
    expect(hero.locator(".readout")).to_contain_text("step 4")


def test_a_run_that_learns_from_conversations_shows_its_losses_and_no_success(page, serve, tmp_path):
    (tmp_path / "runs" / "sft").mkdir(parents=True)
    log = MetricsLog(tmp_path / "runs" / "sft" / "metrics.jsonl")
    names = ("train/loss", "val/loss", "train/grad_norm", "dpo/margin", "dpo/accuracy", "dpo/chosen_nll")
    for step in (1, 2, 3):
        log.append(step, dict.fromkeys(names, 1 / step))
    page.goto(serve(tmp_path / "runs").url + "#/run/sft")
    expect(page.locator(".chart", has_text="Loss").first).to_contain_text("held out 0.333")
    assert page.locator(".chart-title").all_inner_texts() == [
        "Loss",
        "Preference for the success of a pair",
        "Pairs whose success is preferred",
        "Likelihood of the successes",
        "Gradient norm",
    ]


def test_a_look_between_two_steps_shows_both(page, url):
    page.goto(url + "#/run/maze-grpo")
    box = page.locator(".hero .u-over").bounding_box()
    a_step = box["width"] / 12
    page.mouse.move(box["x"] + 4.3 * a_step, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 4.7 * a_step, box["y"] + 60)
    page.mouse.up()
    expect(page.get_by_role("button", name="Show all steps")).to_be_visible()
    expect(page.locator(".hero .chart")).to_have_attribute("aria-label", re.compile(r"training \d"))
    page.locator(".hero .chart").focus()
    page.keyboard.press("Home")
    expect(page.locator(".hero .readout")).to_contain_text("step 4")
    page.keyboard.press("End")
    expect(page.locator(".hero .readout")).to_contain_text("step 5")


def test_a_long_turn_is_drawn_in_parts(page, serve, tmp_path):
    played = episode(1, actions=("up",))
    segment = played.segments[0]
    turn = segment.turns[0]
    turn.token_ids, turn.log_probs, turn.versions = [9] * 20_000, [-0.1] * 20_000, [1] * 20_000
    segment.ids = [*segment.ids[:4], *turn.token_ids]
    EpisodeLog(tmp_path / "runs" / "long" / "episodes", RecordDetails(pieces=pieces)).write("train", 1, [played])
    page.goto(serve(tmp_path / "runs").url + "#/run/long/episode/train_step_000001.jsonl/1")
    tokens = page.locator(".message.agent .token")
    expect(tokens).to_have_count(3000)
    page.get_by_role("button", name="Show more (17,000 tokens left)").click()
    expect(tokens).to_have_count(6000)


def test_a_run_that_is_removed_while_it_is_open_is_told(browser, serve, tmp_path):
    page = browser.new_page()
    for view, seen in [("", ".hero .chart"), ("/episodes", "a.episode-row")]:
        run = make_run(tmp_path / "runs" / "gone", steps=4)
        make_run(tmp_path / "runs" / "other", steps=4) if not view else None
        page.goto(serve(tmp_path / "runs").url + "#/run/gone" + view)
        expect(page.locator(seen).first).to_be_visible()
        shutil.rmtree(run)
        expect(page.get_by_role("alert")).to_contain_text("there is no run gone")
    page.close()


def test_a_server_that_is_gone_is_told(browser, runs):
    context = browser.new_context()
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(error))
    with serving(runs) as server:
        page.goto(server.url)
        expect(page.locator("table")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("does not answer", timeout=8000)
    expect(page.locator("table")).to_be_visible()
    assert errors == []
    context.close()


def test_a_run_that_cannot_be_read_says_so_in_the_list(page, url):
    line = {"name": "bad", "status": "unreadable", "error": "OSError: no"}
    page.route("**/api/runs", lambda route: route.fulfill(json={"root": "r", "one_run": False, "runs": [line]}))
    page.goto(url)
    expect(page.locator("tbody tr")).to_contain_text("OSError: no")


def test_a_long_name_shows_its_end_and_all_of_it_on_hover(page, serve, tmp_path):
    for name in (LONG_NAME, "other"):
        make_run(tmp_path / "runs" / name, steps=4)
    page.goto(serve(tmp_path / "runs").url)
    name = page.locator("tbody a bdi", has_text="maze_a_word")
    expect(name).to_contain_text("grpo-3")
    expect(name).to_have_attribute("title", LONG_NAME)


def test_a_phone_shows_whose_episodes_they_are(browser, url):
    page = browser.new_page(viewport={"width": 390, "height": 800})
    for path in ("#/run/maze-grpo/episodes", EPISODE):
        page.goto(url + path)
        expect(page.locator(".crumb")).to_have_text("maze-grpo")
        assert page.locator(".crumb").evaluate("crumb => crumb.scrollWidth <= crumb.clientWidth")
    page.goto(url + "#/run/maze-grpo/episodes")
    expect(page.locator(".sort").first).to_have_text("Step ↓")
    assert page.locator(".sort").first.evaluate("button => button.offsetHeight") < 30
    page.close()
