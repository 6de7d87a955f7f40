import os
import signal
import subprocess
import sys

import pytest

from openmanus_rl.files import remove_unfinished, written_aside

KILLED_WRITE = """
import os, signal, sys
from pathlib import Path
from openmanus_rl.files import written_aside
with written_aside(Path(sys.argv[1])) as aside:
    aside.write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_REPLACEMENT = """
import os, signal, sys
from pathlib import Path
from openmanus_rl.files import written_aside
rename, renamed = os.replace, []
def rename_and_die(source, target):
    rename(source, target)
    renamed.append(target)
    if len(renamed) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = rename_and_die
with written_aside(Path(sys.argv[1])) as aside:
    aside.mkdir()
    (aside / "new").touch()
"""


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    target = tmp_path / "deep" / "file"
    with written_aside(target) as aside:
        aside.write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    assert os.listdir(target.parent) == ["file"]


def test_a_directory_is_replaced_as_a_whole(tmp_path):
    target = tmp_path / "model"
    for name in ("old", "new"):
        with written_aside(target) as aside:
            (aside / "inner").mkdir(parents=True)
            (aside / "inner" / name).write_text(name)
    assert os.listdir(target / "inner") == ["new"]
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_write_that_fails_changes_nothing(tmp_path, kind):
    target = tmp_path / "thing"
    target.write_text("old")

    def fail_half_way():
        with written_aside(target) as aside:
            if kind == "directory":
                aside.mkdir()
            else:
                aside.write_text("new")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        fail_half_way()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["thing"]


def test_a_write_killed_in_the_middle_leaves_the_old_file(tmp_path):
    target = tmp_path / "file"
    target.write_text("old")
    ended = subprocess.run([sys.executable, "-c", KILLED_WRITE, str(target)])
    assert ended.returncode == -signal.SIGKILL
    assert target.read_text() == "old"


@pytest.mark.parametrize(("renames", "left"), [(1, "old"), (2, "new")])
def test_a_directory_whose_replacement_was_killed_is_whole_again(tmp_path, renames, left):
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").touch()
    ended = subprocess.run([sys.executable, "-c", KILLED_REPLACEMENT, str(target), str(renames)])
    assert ended.returncode == -signal.SIGKILL
    remove_unfinished(tmp_path)
    assert os.listdir(tmp_path) == ["model"]
    assert os.listdir(target) == [left]
