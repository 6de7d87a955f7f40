import sys
import time

import pytest
from tiny_runs import wait_until

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.tracking.boards import TensorBoardLog, WandbLog


def test_tensorboard_forgets_what_a_killed_run_did_after_its_checkpoint(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    killed = TensorBoardLog(tmp_path, first_step=1)
    for step in (1, 2, 3):
        killed.append(step, {"loss": 1.0})
    killed.close()
    # TensorBoard reads files in the order of their names, which tell seconds; within one, writer 10 is before writer 9.
    ended = int(time.time())
    wait_until(lambda: int(time.time()) > ended, 5, "the next second")
    resumed = TensorBoardLog(tmp_path, first_step=3)
    resumed.append(3, {"loss": 2.0})
    resumed.close()
    events = event_accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_wandb_gets_the_names_of_the_metrics_file(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    log = WandbLog(tmp_path, "mazes", RunConfig())
    log.append(0, {"val/success/rate": 0.25})
    log.append(1, {"success/rate": 0.5, "actor/entropy": 0.1})
    log.close()
    (written,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    names = (b"val/success/rate", b"actor/entropy")
    wait_until(lambda: all(name in written.read_bytes() for name in names), 60, "wandb has written what it was given")


def test_without_the_package_wandb_is_refused_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="not installed") as refusal:
        WandbLog(tmp_path, "mazes", RunConfig())
    assert "tracking.wandb" in refusal.value.hint
