import json
import math

import pytest

from openmanus_rl.tracking.metrics import MetricsLog, read_metrics


def written(path, steps):
    log = MetricsLog(path)
    for step in steps:
        log.append(step, {"success/rate": step / 10})
    return log


def test_each_step_is_on_disk_before_the_log_is_closed(tmp_path):
    written(tmp_path / "metrics.jsonl", [1, 2])
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2]
    assert lines[1]["success/rate"] == 0.2
    assert lines[0]["time"] <= lines[1]["time"]


def test_a_resumed_log_has_every_step_exactly_once(tmp_path):
    path = tmp_path / "metrics.jsonl"
    written(path, range(1, 8)).close()
    resumed = MetricsLog(path)
    resumed.truncate_after(5)
    for step in (6, 7, 8):
        resumed.append(step, {"success/rate": 0.0})
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert read_metrics(path)[5]["success/rate"] == 0.0


def test_a_cut_off_last_line_is_left_out_by_readers(tmp_path):
    path = tmp_path / "metrics.jsonl"
    written(path, [1, 2]).close()
    path.write_text(path.read_text()[:-5])
    assert [line["step"] for line in read_metrics(path)] == [1]


def test_a_cut_off_last_line_does_not_swallow_the_next_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    written(path, [1, 2]).close()
    path.write_text(path.read_text()[:-5])
    written(path, [2, 3])
    assert [line["step"] for line in read_metrics(path)] == [1, 2, 3]


def test_a_value_that_is_not_finite_is_null(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append(1, {"kl": math.nan, "loss": math.inf, "entropy": 0.5})

    def refuse(constant):
        pytest.fail(f"{constant} is not JSON")

    line = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert (line["kl"], line["loss"], line["entropy"]) == (None, None, 0.5)
