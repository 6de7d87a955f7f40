"""What the page says of a run is what its directory says, while it grows and when it is damaged."""

import json
import os
import shutil

import pytest
from made_runs import credit, episode, make_run, metrics_at, pieces

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.records import RecordDetails
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.tracking.stats import difference, wilson
from openmanus_rl.trainer.metrics import episode_metrics
from openmanus_rl.viewer.compare import compare, differing_values
from openmanus_rl.viewer.metrics import MetricColumns
from openmanus_rl.viewer.run import READING, RunView
from openmanus_rl.viewer.search import TextMemory


def test_the_overview_tells_success_with_its_interval_events_config_and_what_differs(runs):
    told = RunView(runs / "maze-grpo").overview()
    assert (told["env"], told["algorithm"], told["step"], told["steps"]) == ("maze", "grpo", 12, 12)
    assert told["success"] == {**wilson(96, 128).to_dict(), "step": 12}
    assert [event["event"] for event in told["events"]] == ["started", "guard"]
    assert told["preset"] == {"name": "maze_grpo.yaml", "changed": {"trainer.steps": [50, 12]}}
    assert [checkpoint["step"] for checkpoint in told["checkpoints"]] == [4]
    assert [(part["difficulty"], part["rate"], part["n"]) for part in told["breakdown"]] == [
        ("easy", 1.0, 3),
        ("hard", 0.0, 3),
    ]
    assert told["problems"] == []


def test_a_growing_run_is_read_from_where_it_stood(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    view = RunView(run)
    before = view.state()
    log = MetricsLog(run / "metrics.jsonl")
    log.append(5, metrics_at(5))
    EpisodeLog(run / "episodes").write("train", 5, [episode(1)])
    after = view.state()
    assert after["metrics"] == [before["metrics"][0] + 1, 5]
    assert after["episodes"] > before["episodes"]
    assert view.state() == after


def test_a_resumed_run_that_wrote_its_metrics_anew_is_read_anew(tmp_path):
    run = make_run(tmp_path / "run", steps=8)
    view = RunView(run)
    assert view.state()["metrics"] == [9, 8]
    log = MetricsLog(run / "metrics.jsonl")
    log.truncate_after(4)
    assert view.state()["metrics"] == [5, 4]
    log.append(5, metrics_at(5))
    assert view.state()["metrics"] == [6, 5]


def test_half_a_line_waits_for_its_end(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "time": 1.0, "a": 1}\n{"step": 2, "ti')
    columns = MetricColumns(path)
    columns.refresh()
    assert (columns.steps, columns.broken_lines) == ([1], 0)
    with path.open("a") as file:
        file.write('me": 2.0, "a": 3}\n')
    columns.refresh()
    assert (columns.steps, columns.columns["a"]) == ([1, 2], [1.0, 3.0])


def test_what_cannot_be_read_is_told_and_the_rest_shown(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff\xfe\n[1]\n")
    with (run / "events.jsonl").open("a") as file:
        file.write('{"no": "event"}\n')
    (run / "config.yaml").write_text("trainer: [unclosed")
    (run / "summary.json").write_text("{")
    os.truncate(run / "episodes" / "index.jsonl", 100)
    told = RunView(run).overview()
    assert told["problems"] == [
        "metrics.jsonl: 2 lines are not metrics",
        "events.jsonl: 1 lines are not events",
        "config.yaml cannot be read",
    ]
    assert (told["step"], told["episodes"]) == (4, 4 * 6 + 2 * 6)


def test_an_empty_directory_is_a_run_that_has_not_begun(tmp_path):
    (tmp_path / "episodes").mkdir()
    told = RunView(tmp_path).overview()
    assert (told["step"], told["success"], told["episodes"], told["status"]) == (None, None, 0, "unfinished")


def test_a_run_whose_process_lives_is_running_and_one_with_a_summary_finished(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    (run / ".lock").write_text(str(os.getpid()))
    assert RunView(run).brief()["status"] == "running"
    (run / "summary.json").write_text("{}")
    assert RunView(run).brief()["status"] == "finished"


def test_charts_of_long_runs_are_thinned_to_means_and_rare_metrics_are_kept(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [
        {"step": step, "time": float(step), "dense": step % 2, **({"rare": step} if step % 100 == 0 else {})}
        for step in range(1000)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    columns = MetricColumns(path)
    columns.refresh()
    drawn = columns.chart(["dense", "rare", "unknown"], 100, -1, 10**9)
    assert (drawn["share"], len(drawn["step"])) == (10, 100)
    assert set(drawn["columns"]["dense"]) == {0.5}
    assert drawn["sparse"]["rare"]["values"] == drawn["sparse"]["rare"]["step"] == list(range(0, 1000, 100))
    assert columns.chart(["dense"], 100, 10, 19)["columns"]["dense"] == [0.0, 1.0] * 5


def test_an_episode_comes_with_its_siblings_and_the_way_to_replay_it(runs):
    told = RunView(runs / "maze-grpo").episode("train_step_000002.jsonl", 4)
    assert told["record"]["segments"][0]["advantages"][4] == 0.5
    assert told["record"]["seed"] == "2", "as text: a browser's numbers are too short for a seed"
    assert [sibling["number"] for sibling in told["siblings"]] == [4, 5, 6]
    assert (told["previous"], told["next"]) == (3, 5)
    assert told["path"] == str(runs / "maze-grpo" / "episodes" / "train_step_000002.jsonl")


def test_a_comparison_says_what_differs_and_whether_it_is_more_than_noise(runs):
    told = compare([RunView(runs / name) for name in ("maze-grpo", "maze-ppo")])
    assert told["baseline"] == "maze-grpo"
    assert told["runs"][0]["difference"] is None
    assert told["runs"][1]["difference"]["outside_noise"] is True
    assert told["runs"][1]["difference"]["rate"] == pytest.approx(-0.5)
    assert told["config"] == [{"key": "trainer.seed", "values": [0, 1]}]


def test_keys_that_one_config_does_not_have_differ():
    assert differing_values([{"a": {"b": 1}, "c": 2}, {"a": {"b": 1, "d": 4}, "c": 2}]) == [
        {"key": "a.d", "values": [None, 4]}
    ]


def test_a_difference_is_newcombes():
    """The worked example of Newcombe (1998), table II, method 10: 56/70 against 48/80."""
    found = difference(wilson(56, 70, z=1.959964), wilson(48, 80, z=1.959964))
    assert (found.rate, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert found.is_outside_noise
    assert not difference(wilson(10, 20), wilson(9, 20)).is_outside_noise


def test_what_an_evaluation_kept_can_be_viewed_too(tmp_path):
    EpisodeLog(tmp_path / "played", RecordDetails(pieces=pieces)).write("validation", 0, [episode(1)], credit)
    told = RunView(tmp_path / "played").list_episodes({}, 0, 10)
    assert [row["item_id"] for row in told["rows"]] == ["maze_1"]
    assert RunView(tmp_path / "played").brief()["status"] == "episodes"


def test_a_line_that_is_cut_off_is_told_once_the_run_has_ended(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    for name in ("metrics.jsonl", "events.jsonl"):
        with (run / name).open("a") as file:
            file.write('{"step": 5, "ti')
    view = RunView(run)
    assert view.overview()["problems"] == [
        "metrics.jsonl: its last line is cut off",
        "events.jsonl: its last line is cut off",
    ]
    (run / ".lock").write_text(str(os.getpid()))
    assert view.overview()["problems"] == [], "the rest may come"


def test_numbers_beyond_all_measure_are_told_and_the_rest_shown(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1e400, "time": 1.0}\n{"step": 5, "time": 1.0, "a": 1' + "0" * 400 + "}\n")
        file.write('{"step": 6, "time": 1.0, "val/success/rate": 0.5, "val/success/n": Infinity}\n')
    told = RunView(run).overview()
    assert told["problems"] == ["metrics.jsonl: 2 lines are not metrics"]
    assert (told["step"], told["success"]) == (6, None)


def test_a_checkpoint_that_is_removed_while_it_is_looked_at_is_left_out(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    (run / "checkpoints" / "step_000002").symlink_to(run / "gone")
    assert [checkpoint["step"] for checkpoint in RunView(run).overview()["checkpoints"]] == [4]


def test_episodes_that_come_later_than_the_run_are_found_and_its_other_files_are_none(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    shutil.rmtree(run / "episodes")
    view = RunView(run)
    before = view.overview()
    assert (before["episodes"], before["problems"]) == (0, [])
    EpisodeLog(run / "episodes").write("train", 5, [episode(1)])
    after = view.overview()
    assert after["episodes"] == 1
    assert after["state"]["episodes"] > before["state"]["episodes"]


def test_a_start_that_says_odd_things_of_its_preset_is_shown(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    (run / "events.jsonl").write_text('{"event": "started", "preset": "p", "changed": {"a": 1, "b": [1, 2]}}\n')
    assert RunView(run).overview()["preset"] == {"name": "p", "changed": {"b": [1, 2]}}


def test_what_a_resumed_run_changed_differs_from_the_preset_as_it_is_now(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    told = [
        {"event": "started", "preset": "p", "changed": {"trainer.steps": [50, 4], "trainer.threads": [1, 2]}},
        {
            "event": "resumed",
            "changed": {"trainer.steps": [4, 8], "trainer.threads": [2, 1], "env.num_servers": [1, 2]},
        },
    ]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    assert RunView(run).overview()["preset"]["changed"] == {"trainer.steps": [50, 8], "env.num_servers": [1, 2]}


def test_many_checkpoints_hide_no_alarm(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    told = [{"event": "guard", "step": 1}, *({"event": "checkpoint", "step": step} for step in range(2000))]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))
    events = RunView(run).overview()["events"]
    assert (events[0]["event"], events[-1]["step"]) == ("guard", 1999)
    assert len(events) < 1000


def test_a_run_of_another_verb_is_not_called_what_its_config_says_of_training(tmp_path):
    run = make_run(tmp_path / "run", steps=4)
    (run / "events.jsonl").write_text('{"event": "started", "algorithm": "sft"}\n')
    told = RunView(run).brief()
    assert (told["algorithm"], told["step"], told["steps"]) == ("sft", 4, None)


def test_success_by_difficulty_counts_whom_the_metrics_count(tmp_path):
    """An episode that only its score function failed is judged by the world, and is no sample."""
    ends = [StopReason.DONE, StopReason.REWARD_FAILURE, StopReason.DEADLINE, StopReason.ABORTED]
    played = [episode(item, success=item == 1, stop_reason=end) for item, end in enumerate(ends)]
    EpisodeLog(tmp_path / "run" / "episodes").write("validation", 0, played)
    (part,) = RunView(tmp_path / "run").overview()["breakdown"]
    metrics = episode_metrics(played)
    assert (part["rate"], part["n"]) == (metrics["success/rate"], metrics["success/n"]) == (0.5, 2)
    assert (part["return"], part["turns"]) == (metrics["episode/return/mean"], metrics["num_turns/mean"])


def test_texts_that_were_read_ahead_are_not_read_again_by_the_search(tmp_path, monkeypatch):
    view = RunView(make_run(tmp_path / "run"))
    while not view.read_ahead({"kind": "train"})["done"]:
        pass
    monkeypatch.setattr("os.open", lambda *_: pytest.fail("a file was opened"))
    told = view.list_episodes({"kind": "train", "text": "nowhere to be read"}, 0, 10)
    assert (told["matched"], told["search"]["done"]) == (0, True)


def test_no_more_is_read_ahead_than_is_kept(tmp_path):
    view = RunView(make_run(tmp_path / "run"))
    view._texts = TextMemory(room=5000)
    assert view.read_ahead({})["done"]
    reading = view._listed({"text": READING})
    assert reading.searched < len(reading.candidates)
