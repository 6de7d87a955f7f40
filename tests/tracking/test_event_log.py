import json

from openmanus_rl.tracking.events import EventLog


def kinds(path):
    return [json.loads(line)["event"] for line in path.read_text().splitlines()]


def test_a_resumed_run_forgets_what_it_will_live_through_again_and_keeps_what_happened_to_calls(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.append("started")
    log.append("checkpoint", step=0)
    kept = log.count()
    for kind in ("guard", "checkpoint", "stopped", "resumed", "finished"):
        log.append(kind, step=5)
    log.rewind(kept)
    assert kinds(log.path) == ["started", "checkpoint", "stopped", "resumed"]


def test_a_run_that_was_finished_keeps_that_it_was(tmp_path):
    log = EventLog(tmp_path / "events.jsonl")
    log.append("finished", step=5)
    log.rewind(0, also_kept=frozenset({"finished"}))
    assert kinds(log.path) == ["finished"]


def test_a_line_that_a_kill_cut_off_is_not_continued(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "started"}\n{"event": "chec')
    EventLog(path).append("resumed")
    assert kinds(path) == ["started", "resumed"]
