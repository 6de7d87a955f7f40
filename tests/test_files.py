import os
import signal
import subprocess
import sys

import pytest

from openmanus_rl.files import written_aside

KILLED_WRITE = """
import os, signal, sys
from pathlib import Path
from openmanus_rl.files import written_aside
with written_aside(Path(sys.argv[1])) as aside:
    aside.write_text("new")
    os.kill(os.getpid(), signal.SIGKILL)
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
