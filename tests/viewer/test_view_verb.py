"""`openmanus-rl view`, and the page beside a training run."""

import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from tiny_runs import wait_until

BESIDE = """
import sys
from pathlib import Path
from openmanus_rl.cli.view import page_beside
with page_beside(Path(sys.argv[1])):
    sys.stdin.readline()
print("ended", flush=True)
"""


def is_served(url):
    try:
        return urllib.request.urlopen(url, timeout=20).status == 200
    except OSError:  # refused, or cut off by a server that is just ending
        return False


def test_the_verb_prints_the_address_and_ends_with_ctrl_c(start_cli, runs):
    process = start_cli("view", str(runs / "maze-grpo"))
    wait_until(lambda: "http" in process.out, 60, "the address is printed")
    (url,) = re.findall(r"http://127\.0\.0\.1:\d+/", process.out)
    assert is_served(url)
    process.send(signal.SIGINT)
    process.wait(60)
    assert not is_served(url)


def test_a_directory_that_is_not_there_is_told(cli):
    result = cli("view", "no/such/runs")
    assert (result.code, "there is no directory no/such/runs" in result.err) == (2, True)


@pytest.mark.parametrize("ending", ["in order", "killed"])
def test_the_page_beside_a_run_ends_with_it(tmp_path, ending):
    command = [sys.executable, "-c", BESIDE, str(tmp_path / "runs")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        url = run.stdout.readline().rpartition(" ")[2].strip()
        assert is_served(url)
        if ending == "killed":
            run.kill()
        else:
            run.stdin.write("\n")
            run.stdin.flush()
            assert run.stdout.readline() == "ended\n"
        wait_until(lambda: not is_served(url), 30, "the page has ended")
