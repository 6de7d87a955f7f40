"""The table of episodes is what the files say, whatever state the files are in."""

import json
import os

import pytest
from made_runs import credit, episode, make_run, pieces

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.records import RecordDetails
from openmanus_rl.errors import UserError
from openmanus_rl.tracking.episode_index import INDEX
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.viewer.episodes import EpisodeTable
from openmanus_rl.viewer.filters import filter_from, in_order
from openmanus_rl.viewer.search import Search, TextMemory


def log(directory):
    return EpisodeLog(directory, RecordDetails(pieces=pieces))


def table(directory, seconds=10.0):
    found = EpisodeTable(directory)
    found.refresh(seconds)
    return found


def items(rows):
    return [row.entry.item_id for row in rows]


def test_the_index_says_what_reading_the_files_says(tmp_path):
    log(tmp_path).write("train", 3, [episode(1, success=True), episode(2, actions=("up", None))], credit)
    log(tmp_path).write("validation", 0, [episode(5, difficulty="hard", stop_reason=StopReason.ENV_FAILURE)])
    indexed = table(tmp_path).rows
    (tmp_path / INDEX).unlink()
    assert table(tmp_path).rows == indexed
    assert [(row.kind, row.step, row.entry.number, row.entry.item_id) for row in indexed] == [
        ("validation", 0, 1, "maze_5"),
        ("train", 3, 1, "maze_1"),
        ("train", 3, 2, "maze_2"),
    ]
    assert (indexed[0].entry.difficulty, indexed[0].entry.trained) == ("hard", False)
    assert (indexed[1].entry.tokens, indexed[1].entry.turns, indexed[1].entry.trained) == (6, 2, True)


def test_with_an_index_no_file_of_episodes_is_opened(tmp_path, monkeypatch):
    log(tmp_path).write("train", 1, [episode(1), episode(2)])
    monkeypatch.setattr(EpisodeTable, "_read_file", lambda self, name: pytest.fail(f"{name} was read"))
    assert items(table(tmp_path).rows) == ["maze_1", "maze_2"]


def test_a_record_is_found_by_its_place(tmp_path):
    log(tmp_path).write("train", 1, [episode(1), episode(2, observation="«übel» 🚀")])
    found = table(tmp_path)
    assert found.record(found.find("train_step_000001.jsonl", 2))["turns"][0]["observation"] == "«übel» 🚀"
    with pytest.raises(UserError, match="no episode 3"):
        found.find("train_step_000001.jsonl", 3)


def test_a_step_that_was_played_again_is_listed_once_as_it_is_now(tmp_path):
    found = table(tmp_path)
    log(tmp_path).write("train", 1, [episode(1), episode(2)])
    found.refresh()
    log(tmp_path).write("train", 1, [episode(9)])
    found.refresh()
    assert items(found.rows) == items(table(tmp_path).rows) == ["maze_9"]


@pytest.mark.parametrize("cut", [1, 40, 4000])
def test_a_file_that_is_cut_off_in_a_line_is_shown_up_to_there_and_told(tmp_path, cut):
    path = log(tmp_path).write("train", 1, [episode(1), episode(2)])
    os.truncate(path, path.stat().st_size - min(cut, path.stat().st_size // 2 - 10))
    found = table(tmp_path)
    assert items(found.rows) == ["maze_1"]
    assert found.problems == ["train_step_000001.jsonl: line 2 is cut off"]


def test_a_cut_off_index_is_made_good_from_the_files_and_by_the_next_write(tmp_path):
    writer = log(tmp_path)
    for step in (1, 2):
        writer.write("train", step, [episode(step)])
    os.truncate(tmp_path / INDEX, (tmp_path / INDEX).stat().st_size - 20)
    assert items(table(tmp_path).rows) == ["maze_1", "maze_2"]
    writer.write("train", 3, [episode(3)])
    assert [json.loads(line)["name"][-7:] for line in (tmp_path / INDEX).read_text().splitlines()] == [
        "1.jsonl",
        "3.jsonl",
    ]
    assert items(table(tmp_path).rows) == ["maze_1", "maze_2", "maze_3"]


def test_foreign_files_are_told_and_harm_nothing(tmp_path):
    log(tmp_path).write("train", 1, [episode(1)])
    (tmp_path / "notes.jsonl").write_text('{"a": 1}\n[]\n7\nnot JSON\n')
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    (tmp_path / "readme.txt").write_text("hello")
    found = table(tmp_path)
    assert items(found.rows) == ["maze_1"]
    assert len([problem for problem in found.problems if problem.startswith("notes.jsonl")]) == 4
    assert any(problem.startswith("binary.jsonl") for problem in found.problems)


def test_numbers_count_lines_as_replay_does_past_a_line_that_is_no_episode(tmp_path):
    path = log(tmp_path).write("train", 1, [episode(1), episode(2)])
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\nbroken\n{second}\n")
    found = table(tmp_path)
    assert [row.entry.number for row in found.rows] == [1, 3]
    assert found.record(found.rows[1])["item_id"] == "maze_2"


def test_files_without_an_index_are_read_bit_by_bit(tmp_path):
    for step in range(5):
        log(tmp_path).write("train", step, [episode(step)])
    (tmp_path / INDEX).unlink()
    found = EpisodeTable(tmp_path)
    found.refresh(0)
    assert (len(found.rows), len(found.waiting)) == (0, 5)
    found.refresh(10)
    assert (len(found.rows), len(found.waiting)) == (5, 0)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return table(make_run(tmp_path_factory.mktemp("filtered") / "run") / "episodes")


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        ({"kind": "validation"}, lambda row: row.kind == "validation"),
        ({"outcome": "success"}, lambda row: row.entry.success),
        ({"outcome": "miss", "kind": "train"}, lambda row: not row.entry.success and row.kind == "train"),
        ({"first_step": "3", "last_step": "5"}, lambda row: 3 <= row.step <= 5),
        ({"lowest_return": "0.5"}, lambda row: row.entry.episode_return >= 0.5),
        ({"difficulty": "hard"}, lambda row: row.entry.difficulty == "hard"),
        ({"item": "MAZE_1"}, lambda row: "maze_1" in row.entry.item_id),
        ({"trained": "no"}, lambda row: not row.entry.trained),
        ({"group": "1"}, lambda row: row.entry.group == 1),
    ],
)
def test_a_filter_keeps_what_fits_and_only_that(filled, words, holds):
    kept = filter_from(words).choose(filled.rows)
    assert kept == [row for row in filled.rows if holds(row)]
    assert 0 < len(kept) < len(filled.rows)


def test_a_failed_episode_is_no_miss(tmp_path):
    log(tmp_path).write("train", 1, [episode(1, stop_reason=reason) for reason in StopReason])
    rows = table(tmp_path).rows
    for outcome, is_sample in [("miss", True), ("failed", False)]:
        ends = [row.entry.stop_reason for row in filter_from({"outcome": outcome}).choose(rows)]
        assert ends == [reason for reason in StopReason if reason.is_sample == is_sample]


def test_mistakes_in_a_filter_are_told(filled):
    for words, told in [({"first_step": "x"}, "not a number"), ({"outcome": "sucess"}, "Did you mean success")]:
        with pytest.raises(UserError, match=told):
            filter_from(words).choose(filled.rows)
    with pytest.raises(UserError, match="order=size"):
        in_order([], "size", True) or in_order(filled.rows, "size", True)


def test_a_search_finds_words_in_texts_whatever_their_case_and_not_in_keys_or_tokens(tmp_path):
    said = episode(1, observation='The ÄRGER is "near"\nyou')
    log(tmp_path).write("train", 1, [said, episode(2), episode(3, prompt="Find the Key.")])
    found = table(tmp_path)

    def search(words):
        looking = Search(found, found.rows, words)
        looking.go_on(100, seconds=10)
        assert looking.is_done
        return items(looking.found)

    assert search("the ärger") == ["maze_1"]
    assert search('"near"\nyou') == ["maze_1"]
    assert search("find the KEY") == ["maze_3"]
    assert search("maze_2") == ["maze_2"]
    assert search("t100") == [], "tokens are not searched"
    assert search("stop_reason") == [], "keys are not searched"


def test_a_search_goes_on_where_it_stood(filled):
    looking = Search(filled, filled.rows, "thought")
    looking.go_on(5, seconds=10)
    first_file = filled.of_file(filled.rows[0].file)
    assert looking.found == first_file, "a file is searched whole"
    assert looking.searched == len(first_file) > 5
    looking.go_on(10**6, seconds=10)
    assert looking.found == filled.rows


def found_with(table, words, memory):
    looking = Search(table, table.rows, words, memory)
    looking.go_on(10**6, seconds=10)
    return looking.found


def test_a_later_search_reads_no_file_again(filled, monkeypatch):
    memory = TextMemory()
    assert found_with(filled, "nowhere to be read", memory) == []
    monkeypatch.setattr("os.open", lambda *_: pytest.fail("a file was opened"))
    assert found_with(filled, "nor this", memory) == []


def test_a_file_that_was_written_anew_is_searched_anew(tmp_path):
    run = make_run(tmp_path / "run")
    found, memory = table(run / "episodes"), TextMemory()
    before = found_with(found, "thought", memory)
    first = run / "episodes" / before[0].file
    first.write_bytes(first.read_bytes().replace(b"hought", b"HXXGHT") + b"\n")
    found.refresh()
    assert [row for row in found_with(found, "thought", memory) if row.file == first.name] == []


def test_what_has_no_room_is_read_again(filled):
    assert found_with(filled, "thought", TextMemory(room=0)) == filled.rows


def test_a_record_with_a_number_beyond_all_measure_is_told(tmp_path):
    path = log(tmp_path).write("train", 1, [episode(1), episode(2)])
    (tmp_path / INDEX).unlink()
    path.write_text(path.read_text().replace('"group": 0', '"group": Infinity', 1))
    found = table(tmp_path)
    assert items(found.rows) == ["maze_2"]
    assert found.problems == ["train_step_000001.jsonl: line 1 is no episode"]


def test_what_only_looks_like_an_episode_is_not_found_and_breaks_no_search(tmp_path):
    path = log(tmp_path).write("train", 1, [episode(1), episode(2)])
    (tmp_path / INDEX).unlink()
    odd, whole = path.read_text().splitlines()
    record = json.loads(odd) | {"turns": ["thought"]}
    path.write_text(f"{json.dumps(record)}\n{whole}\n")
    found = table(tmp_path)
    assert items(found_with(found, "thought", TextMemory())) == ["maze_2"]


@pytest.mark.parametrize("worth_skipping", [0, 10**6])
def test_lines_are_searched_alike_whether_they_are_read_whole_or_in_parts(filled, monkeypatch, worth_skipping):
    monkeypatch.setattr("openmanus_rl.viewer.search.WORTH_SKIPPING", worth_skipping)
    rows = [row for row in reversed(filled.rows) if row.entry.number != 2]
    looking = Search(filled, rows, "action: left")
    looking.go_on(10**6, seconds=10)
    said = [row for row in rows if any("Action: left" in turn["text"] for turn in filled.record(row)["turns"])]
    assert looking.found == said
