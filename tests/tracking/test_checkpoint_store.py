import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from openmanus_rl.errors import UserError
from openmanus_rl.tracking.checkpoints import (
    CheckpointStore,
    best_checkpoint,
    find_damage,
    has_checkpoints,
    latest_checkpoint,
)


def writer(content):
    def stage(directory: Path) -> Callable[[], None]:
        (directory / "trainer.json").write_text("{}")

        def complete() -> None:
            (directory / "model").mkdir()
            (directory / "model" / "weights.bin").write_bytes(content)

        return complete

    return stage


def saved(store, step, stage, success=None):
    """Save to the end; the checkpoint's directory."""
    store.save(step, stage, success)
    store.wait()
    return store.directory / f"step_{step:06d}"


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def content(checkpoint):
    return (checkpoint.path / "model" / "weights.bin").read_bytes()


def test_the_newest_checkpoint_is_found_with_its_content(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    saved(store, 10, writer(b"ten"))
    saved(store, 20, writer(b"twenty"))
    latest = store.latest()
    assert (latest.step, content(latest), latest.skipped) == (20, b"twenty", ())
    assert latest.path.name == "step_000020"


def test_an_empty_store_has_no_latest(tmp_path):
    assert CheckpointStore(tmp_path / "new", keep=1).latest() is None
    assert not has_checkpoints(tmp_path / "new")


def test_only_the_last_k_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20, 30):
        saved(store, step, writer(b"x"))
    assert names(tmp_path) == ["step_000020", "step_000030"]


def test_the_best_by_success_is_kept_beside_the_last_k_and_the_newest_of_equals(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    for step, success in ((10, 0.5), (20, 0.9), (30, None), (40, 0.9), (50, 0.4)):
        saved(store, step, writer(b"x"), success)
    assert names(tmp_path) == ["step_000040", "step_000050"]
    assert best_checkpoint(tmp_path).step == 40
    assert store.latest().step == 50


def test_a_checkpoint_is_written_beside_its_caller_and_the_next_waits_for_it(tmp_path):
    store, may_end = CheckpointStore(tmp_path, keep=2), threading.Event()

    def stage(directory: Path) -> Callable[[], None]:
        return lambda: may_end.wait(60) and (directory / "weights.bin").write_bytes(b"slow")

    store.save(10, stage)
    store.check()
    assert names(tmp_path) == [".saving_step_000010"], "the caller goes on, and nobody takes it for a checkpoint"
    may_end.set()
    store.save(20, writer(b"next"))
    assert "step_000010" in names(tmp_path)
    store.close()
    assert names(tmp_path) == ["step_000010", "step_000020"]


def test_what_goes_wrong_in_the_background_is_raised_by_the_next_look(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)

    def stage(directory: Path) -> Callable[[], None]:
        def complete() -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        return complete

    store.save(10, stage)
    with pytest.raises(UserError, match=r"step 10 could not be written .*: .*Input/output error"):
        store.close()
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("moved_to", "reason"), [("step_000030", "it is of step 20"), ("step_000020", "it is of another run (theirs)")]
)
def test_a_foreign_checkpoint_is_refused_and_the_one_before_it_used(tmp_path, moved_to, reason):
    own = CheckpointStore(tmp_path / "own", keep=2, run_id="ours")
    saved(own, 10, writer(b"ten"))
    foreign = saved(CheckpointStore(tmp_path / "other", keep=2, run_id="theirs"), 20, writer(b"twenty"))
    foreign.rename(own.directory / moved_to)
    latest = own.latest()
    assert (latest.step, latest.skipped) == (10, (f"{moved_to}: {reason}",))


def truncate(path):
    os.truncate(path, 3)


def flip_a_byte(path):
    damaged = bytearray(path.read_bytes())
    damaged[0] ^= 1
    path.write_bytes(damaged)


@pytest.mark.parametrize(
    ("damage", "file", "reason"),
    [
        (truncate, "model/weights.bin", "model/weights.bin has 3 bytes instead of 6"),
        (flip_a_byte, "model/weights.bin", "the content of model/weights.bin has changed"),
        (os.remove, "trainer.json", "trainer.json is missing"),
        (os.remove, "manifest.json", "it has no manifest.json"),
        (truncate, "manifest.json", "its manifest.json cannot be read"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_and_the_reason_told(tmp_path, damage, file, reason):
    store = CheckpointStore(tmp_path, keep=2)
    saved(store, 10, writer(b"ten"))
    damage(saved(store, 20, writer(b"twenty")) / file)
    latest = store.latest()
    assert (latest.step, content(latest)) == (10, b"ten")
    assert latest.skipped == (f"step_000020: {reason}",)


def test_if_every_checkpoint_is_damaged_nothing_starts_anew_in_silence(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    truncate(saved(store, 10, writer(b"twenty")) / "model/weights.bin")
    with pytest.raises(UserError, match=r"step_000010: .* has 3 bytes"):
        store.latest()


def test_a_damaged_later_checkpoint_never_outlives_a_good_one(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    (saved(store, 60, writer(b"x")) / "manifest.json").unlink()
    saved(store, 55, writer(b"good"))
    assert names(tmp_path) == ["step_000055"]


def test_saving_a_step_again_replaces_it(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    saved(store, 10, writer(b"old"))
    saved(store, 10, writer(b"new"))
    assert content(store.latest()) == b"new"
    assert names(tmp_path) == ["step_000010"]


def test_a_full_disk_leaves_the_last_checkpoint_and_says_so(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    saved(store, 10, writer(b"ten"))

    def write_to_a_full_disk(directory: Path) -> None:
        (directory / "part.bin").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=r"step 20 could not be written .*: the disk is full") as raised:
        saved(store, 20, write_to_a_full_disk)
    assert "step 10 is untouched" in raised.value.hint
    assert names(tmp_path) == ["step_000010"]
    assert store.latest().step == 10


def test_a_failed_rename_brings_the_replaced_checkpoint_back(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, keep=1)
    saved(store, 10, writer(b"old"))
    rename = Path.rename

    def refuse_the_new_one(path, target):
        if path.name.startswith(".saving_"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new_one)
    with pytest.raises(UserError, match="Input/output error"):
        saved(store, 10, writer(b"new"))
    assert content(store.latest()) == b"old"
    assert names(tmp_path) == ["step_000010"]


def test_a_mistake_in_the_writer_is_not_taken_for_the_users(tmp_path):
    def fail(directory: Path) -> None:
        raise KeyError("optimizer")

    with pytest.raises(KeyError):
        saved(CheckpointStore(tmp_path, keep=1), 10, fail)
    assert names(tmp_path) == []


# Saves step 10, then step 20 (or 10 again), and is killed by -9 right before the named call of the second save.
KILLED_SAVE = """
import os, pathlib, shutil, signal, sys
from openmanus_rl.tracking import checkpoints

directory, point, step = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = checkpoints.CheckpointStore(directory, keep=1)

def write(content):
    def stage(path):
        def complete():
            (path / "weights.bin").write_bytes(content)
            if content == b"new" and point == "writing":
                os.kill(os.getpid(), signal.SIGKILL)
        return complete
    return stage

def kill_before(owner, name, condition=lambda *arguments: True):
    original = getattr(owner, name)
    def replacement(*arguments, **options):
        if condition(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)
    setattr(owner, name, replacement)

store.save(10, write(b"old"))
store.wait()
if point == "flush":
    kill_before(checkpoints, "flush")
if point == "manifest":
    kill_before(checkpoints, "write_json")
if point == "rename":
    kill_before(pathlib.Path, "rename", lambda path, target: path.name.startswith(".saving_"))
if point == "after rename":
    kill_before(checkpoints, "flush", lambda path: path == directory)
if point == "removal":
    kill_before(shutil, "rmtree", lambda path, *_: path.name.startswith((".removing_", ".replaced_")) and path.exists())
store.save(step, write(b"new"))
store.wait()
"""


@pytest.mark.parametrize("second_step", [20, 10])
@pytest.mark.parametrize(
    ("point", "survivor"),
    [
        ("writing", b"old"),
        ("flush", b"old"),
        ("manifest", b"old"),
        ("rename", b"old"),
        ("after rename", b"new"),
        ("removal", b"new"),
    ],
)
def test_a_killed_save_leaves_a_checkpoint_that_loads(tmp_path, point, survivor, second_step):
    command = [sys.executable, "-c", KILLED_SAVE, str(tmp_path), point, str(second_step)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    store = CheckpointStore(tmp_path, keep=1)
    latest = store.latest()
    assert (latest.path / "weights.bin").read_bytes() == survivor
    assert latest.skipped == ()
    assert [name for name in names(tmp_path) if name.startswith(".")] == []
    saved(store, 30, writer(b"next"))
    assert names(tmp_path) == ["step_000030"]


def test_looking_for_the_latest_changes_nothing(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    saved(store, 10, writer(b"ten"))
    (tmp_path / ".saving_step_000020").mkdir()
    assert latest_checkpoint(tmp_path).step == 10
    assert names(tmp_path) == [".saving_step_000020", "step_000010"]
    assert find_damage(tmp_path / "step_000010") is None
