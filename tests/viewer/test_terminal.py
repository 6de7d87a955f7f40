"""Episodes in the terminal: the same truth in colour, and nothing of a model acts there."""

import io
import re

import pytest
from hostile_strings import hostile_strings
from made_runs import episode
from rich.console import Console

from openmanus_rl.agent.records import RecordDetails
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.viewer.episodes import EpisodeTable
from openmanus_rl.viewer.hostile import visible
from openmanus_rl.viewer.run import RunView
from openmanus_rl.viewer.terminal import episode_table, one_episode

ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal would obey, or cannot print."""


def test_episodes_are_listed_newest_first_and_narrowed(cli, runs):
    run = str(runs / "maze-grpo")
    listed = cli("episodes", "show", run, "--kind", "train", "--outcome", "success", "--n", "2")
    assert re.findall(r"train_step_\d+:\d", listed.out) == ["train_step_000012:4", "train_step_000012:1"]
    assert "2 of 24" in listed.out
    assert re.findall(r"\w+_step_\d+:\d", cli("episodes", "show", run, "--step", "3").out)[-1] == "train_step_000003:1"


def test_a_narrow_terminal_cuts_no_episodes_name(tmp_path):
    EpisodeLog(tmp_path, RecordDetails()).write("validation", 1, [episode(0, item_id="alfworld a long way " * 5)])
    table = EpisodeTable(tmp_path)
    table.refresh()
    narrow = Console(file=io.StringIO(), width=80)
    narrow.print(episode_table([table.find("validation_step_000001.jsonl", 1)]))
    assert "validation_step_000001:1 " in narrow.file.getvalue()


def test_an_episode_is_read_turn_by_turn(cli, runs):
    shown = cli("episodes", "show", str(runs / "maze-grpo"), "train_step_000002:1").out
    for said in ("maze_2", "6 of 6 sampled tokens trained", "t100 t101 t102", "✓ up", "reward +1", "You are at 0."):
        assert said in shown
    assert (
        "0 of 6 sampled tokens trained"
        in cli("episodes", "show", str(runs / "maze-grpo"), "validation_step_000000:1").out
    )


def test_every_token_has_its_numbers_in_a_table(cli, runs):
    table = cli("episodes", "show", str(runs / "maze-grpo"), "train_step_000002:1", "--tokens").out.split("\n")
    assert table[2].split() == ["1", "5", "101", "t101", "-1.5000", "-1.5100", "0.5000", "0.0000", "7"]


def test_colours_tell_what_was_above_the_baseline_from_what_was_below(runs):
    table = RunView(runs / "maze-grpo").episodes
    table.refresh()

    def colour_of(number):
        console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=100)
        row = table.find("train_step_000002.jsonl", number)
        console.print(one_episode(row, table.record(row), "advantage"))
        (colour,) = re.findall(r"\x1b\[([\d;]+)mt100", console.file.getvalue())
        return colour

    assert colour_of(1) != colour_of(2) == colour_of(3)


def test_grep_finds_what_was_said_and_fails_where_nothing_was(cli, runs):
    found = cli("episodes", "grep", str(runs / "maze-grpo"), "action: LEFT", "--n", "1")
    assert found.out.startswith("validation_step_000012:6: ")
    assert "Action: left" in found.out
    nothing = cli("episodes", "grep", str(runs / "maze-grpo"), "no such words")
    assert (nothing.code, nothing.out) == (1, "")


def test_diff_says_where_two_episodes_part(cli, runs):
    run = str(runs / "maze-grpo")
    assert "they part at turn 2" in cli("episodes", "diff", run, "train_step_000002:1", "train_step_000002:2").out
    assert "they go the same way" in cli("episodes", "diff", run, "train_step_000002:1", "train_step_000002:4").out
    assert "not the same task" in cli("episodes", "diff", run, "train_step_000002:1", "train_step_000003:1").out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["show", "none"], "is not a run directory"),
        (["show", "RUN", "train"], "is no episode"),
        (["show", "RUN", "train_step_000002:99"], "there is no episode 99"),
        (["show", "RUN", "train_step_000002:1", "--colour", "advantag"], "Did you mean advantage"),
        (["show", "RUN", "--outcome", "won"], "outcome=won is not known"),
    ],
)
def test_mistakes_are_told(cli, runs, words, told):
    result = cli("episodes", *(str(runs / "maze-grpo") if word == "RUN" else word for word in words))
    assert result.code == 2
    assert told in result.err


def test_nothing_of_a_model_acts_in_the_terminal(cli, tmp_path):
    strings = [text[:3000] for text in hostile_strings()]
    played = [episode(number, item_id=text[:80] or "empty", observation=text) for number, text in enumerate(strings)]
    for one, text in zip(played, strings, strict=True):
        one.turns[0].text = one.turns[0].action = one.turns[0].state_key = one.turns[0].invalid_reason = text
    details = RecordDetails(pieces=lambda ids: [strings[(token * 7) % len(strings)] for token in ids])
    EpisodeLog(tmp_path / "episodes", details).write("train", 1, played)
    shown = cli("episodes", "show", str(tmp_path), "--n", "300").out
    for number in range(1, len(strings), 40):
        shown += cli("episodes", "show", str(tmp_path), f"train_step_000001:{number}").out
    shown += cli("episodes", "grep", str(tmp_path), "evil").out
    shown += cli("episodes", "diff", str(tmp_path), "train_step_000001:1", "train_step_000001:150").out
    assert not ACTS.search(shown)


def test_visible_text_keeps_what_can_be_read():
    for text in hostile_strings():
        assert not ACTS.search(visible(text))
    assert visible("tabs\tand\nlines, «ünïcode» 🚀") == "tabs\tand\nlines, «ünïcode» 🚀"
    assert visible("\x1b[31m\u202e\ud83d") == "␛[31m⟨U+202E⟩⟨U+D83D⟩"


def test_an_episode_can_be_written_as_one_file(cli, runs, tmp_path):
    assert (
        cli("episodes", "show", str(runs / "maze-grpo"), "train_step_000002:1", "--html", str(tmp_path / "a.html")).code
        == 0
    )
    assert "You are at 0." in (tmp_path / "a.html").read_text()
