import subprocess
import sys
from pathlib import Path

import pytest
from browser import CHROMIUM

SCRIPT = Path(__file__).parents[2] / "scripts" / "screenshots.py"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no browser; Debian, Ubuntu: apt-get install -y chromium")
def test_every_view_is_taken_in_both_colours(runs, tmp_path):
    pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    command = [sys.executable, SCRIPT, runs / "maze-grpo", runs / "maze-ppo", "--output", tmp_path]
    subprocess.run(command, check=True, timeout=240)
    views = ("run", "episodes", "episode", "group", "compare")
    assert {path.stem for path in tmp_path.iterdir()} == {
        f"{view}-{scheme}" for view in views for scheme in ("light", "dark")
    }
    assert all(path.stat().st_size < 300_000 for path in tmp_path.iterdir())
