import struct

from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.tracking.picture import learning_curve


def png_size(path):
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def draw(tmp_path, lines):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step, metrics in enumerate(lines):
        log.append(step, metrics)
    learning_curve(tmp_path / "metrics.jsonl", tmp_path / "curve.png", "maze · GRPO")
    return tmp_path / "curve.png"


def validation(rate):
    return {"val/success/rate": rate, "val/success/low": rate - 0.05, "val/success/high": rate + 0.05}


def test_a_whole_run_becomes_a_picture(tmp_path):
    steps = [
        {"success/rate": 0.1 * step, "episode/return/mean": step, "actor/entropy": 1.0, "training/seconds": 3.0 * step}
        for step in range(10)
    ]
    drawn = draw(tmp_path, [{**step, **validation(0.1 * index)} for index, step in enumerate(steps)])
    assert png_size(drawn) == (1500, 840)
    assert [path.name for path in tmp_path.glob("*.png")] == ["curve.png"]


def test_absent_and_null_metrics_leave_the_picture_standing(tmp_path):
    width, _ = png_size(draw(tmp_path, [validation(0.4), {"episode/return/mean": float("nan")}]))
    assert width == 1500


def test_a_run_without_any_line_still_gives_a_picture(tmp_path):
    png_size(draw(tmp_path, []))


def test_different_success_gives_a_different_picture(tmp_path):
    low, high = tmp_path / "low", tmp_path / "high"
    low.mkdir()
    high.mkdir()
    worse, better = draw(low, [validation(0.1), validation(0.2)]), draw(high, [validation(0.1), validation(0.9)])
    assert worse.read_bytes() != better.read_bytes()
