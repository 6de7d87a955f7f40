import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from openmanus_rl.errors import UserError
from openmanus_rl.tracking.checkpoints import CheckpointStore, find_damage, has_checkpoints, latest_checkpoint


def writer(content):
    def write(directory: Path) -> None:
        (directory / "model").mkdir()
        (directory / "model" / "weights.bin").write_bytes(content)
        (directory / "trainer.json").write_text("{}")

    return write


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def content(checkpoint):
    return (checkpoint.path / "model" / "weights.bin").read_bytes()


def test_the_newest_checkpoint_is_found_with_its_content(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    store.save(10, writer(b"ten"))
    store.save(20, writer(b"twenty"))
    latest = store.latest()
    assert (latest.step, content(latest), latest.skipped) == (20, b"twenty", ())
    assert latest.path.name == "step_000020"


def test_an_empty_store_has_no_latest(tmp_path):
    assert CheckpointStore(tmp_path / "new", keep=1).latest() is None
    assert not has_checkpoints(tmp_path / "new")


def test_only_the_last_k_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20, 30):
        store.save(step, writer(b"x"))
    assert names(tmp_path) == ["step_000020", "step_000030"]


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
    store.save(10, writer(b"ten"))
    damage(store.save(20, writer(b"twenty")).path / file)
    latest = store.latest()
    assert (latest.step, content(latest)) == (10, b"ten")
    assert latest.skipped == (f"step_000020: {reason}",)


def test_if_every_checkpoint_is_damaged_nothing_starts_anew_in_silence(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    truncate(store.save(10, writer(b"twenty")).path / "model/weights.bin")
    with pytest.raises(UserError, match=r"step_000010: .* has 3 bytes"):
        store.latest()


def test_a_damaged_later_checkpoint_never_outlives_a_good_one(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    (store.save(60, writer(b"x")).path / "manifest.json").unlink()
    store.save(55, writer(b"good"))
    assert names(tmp_path) == ["step_000055"]


def test_saving_a_step_again_replaces_it(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(10, writer(b"old"))
    store.save(10, writer(b"new"))
    assert content(store.latest()) == b"new"
    assert names(tmp_path) == ["step_000010"]


def test_a_full_disk_leaves_the_last_checkpoint_and_says_so(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(10, writer(b"ten"))

    def write_to_a_full_disk(directory: Path) -> None:
        (directory / "part.bin").write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UserError, match=r"step 20 could not be written .*: the disk is full") as raised:
        store.save(20, write_to_a_full_disk)
    assert "step 10 is untouched" in raised.value.hint
    assert names(tmp_path) == ["step_000010"]
    assert store.latest().step == 10


def test_a_failed_rename_brings_the_replaced_checkpoint_back(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(10, writer(b"old"))
    rename = Path.rename

    def refuse_the_new_one(path, target):
        if path.name.startswith(".saving_"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new_one)
    with pytest.raises(UserError, match="Input/output error"):
        store.save(10, writer(b"new"))
    assert content(store.latest()) == b"old"
    assert names(tmp_path) == ["step_000010"]


def test_a_mistake_in_the_writer_is_not_taken_for_the_users(tmp_path):
    def fail(directory: Path) -> None:
        raise KeyError("optimizer")

    with pytest.raises(KeyError):
        CheckpointStore(tmp_path, keep=1).save(10, fail)
    assert names(tmp_path) == []


# Saves step 10, then step 20 (or 10 again), and is killed by -9 right before the named call of the second save.
KILLED_SAVE = """
import os, pathlib, shutil, signal, sys
from openmanus_rl.tracking import checkpoints

directory, point, step = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
store = checkpoints.CheckpointStore(directory, keep=1)

def write(content):
    def write_files(path):
        (path / "weights.bin").write_bytes(content)
        if content == b"new" and point == "writing":
            os.kill(os.getpid(), signal.SIGKILL)
    return write_files

def kill_before(owner, name, condition=lambda *arguments: True):
    original = getattr(owner, name)
    def replacement(*arguments, **options):
        if condition(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)
    setattr(owner, name, replacement)

store.save(10, write(b"old"))
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
    store.save(30, writer(b"next"))
    assert names(tmp_path) == ["step_000030"]


def test_looking_for_the_latest_changes_nothing(tmp_path):
    store = CheckpointStore(tmp_path, keep=1)
    store.save(10, writer(b"ten"))
    (tmp_path / ".saving_step_000020").mkdir()
    assert latest_checkpoint(tmp_path).step == 10
    assert names(tmp_path) == [".saving_step_000020", "step_000010"]
    assert find_damage(tmp_path / "step_000010") is None
