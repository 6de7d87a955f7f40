"""vLLM's processes: Ctrl-C is not for them, they end with the engine, and a dead one is noticed."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from small_models import build
from vllm_cases import engine_processes, run, running, saved_llama, vllm_config

from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import EngineLost, SamplingParams
from openmanus_rl.inference.factory import make_engine


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    return saved_llama(tmp_path_factory.mktemp("model"))


def test_ctrl_c_leaves_vllm_alone_and_a_killed_process_is_an_engine_lost(model_dir):
    async def scenario(engine) -> None:
        for process in engine_processes():
            process.send_signal(signal.SIGINT)
        endless = asyncio.create_task(engine.generate([1], SamplingParams(4000), seed=0, session="a"))
        assert len(await engine.score([1, 2])) == 1
        for process in engine_processes():
            process.kill()
        with pytest.raises(EngineLost):
            await endless
        for call in (
            engine.generate([1], SamplingParams(4), seed=0, session="a"),
            engine.score([1, 2]),
            engine.update_weights(build("vllm llama").state_dict(), 1),
        ):
            with pytest.raises(EngineLost):
                await call

    environment = dict(os.environ)
    with running(model_dir, vllm_config()) as engine:
        assert dict(os.environ) == environment
        run(scenario(engine))


START = """
import sys
sys.path[:0] = {paths!r}
from small_models import build
from vllm_cases import engine_processes, vllm_config
from openmanus_rl.inference.factory import make_engine

if __name__ == "__main__":
    engine = make_engine(vllm_config(), {model_dir!r})
    print(*(process.pid for process in engine_processes()), flush=True)
    {then}
"""


@pytest.mark.slow
@pytest.mark.parametrize("then", ["sys.stdin.read()", "pass"], ids=["killed", "left without close"])
def test_an_owner_that_goes_without_a_word_takes_vllm_with_it(model_dir, tmp_path, then):
    script = tmp_path / "owner.py"
    script.write_text(START.format(paths=sys.path, model_dir=model_dir, then=then))
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        processes = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        assert processes
        if then != "pass":
            owner.kill()
        owner.wait(timeout=60)
    assert psutil.wait_procs(processes, timeout=30)[1] == []


@pytest.mark.slow
def test_a_start_that_is_interrupted_leaves_nothing(model_dir, tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(START.format(paths=sys.path, model_dir=model_dir, then="pass"))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as owner:
        watched = psutil.Process(owner.pid)
        while not any("spawn_main" in " ".join(child.cmdline()) for child in watched.children()):
            time.sleep(0.05)
        processes = watched.children(recursive=True)
        os.kill(owner.pid, signal.SIGINT)
        owner.wait(timeout=90)
    assert owner.returncode != 0
    assert psutil.wait_procs(processes, timeout=30)[1] == []


def test_without_vllm_the_error_says_how_to_install_it(model_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)  # an import of it fails
    with pytest.raises(UserError, match=r"scripts/setup\.sh vllm"):
        make_engine(vllm_config(), model_dir)
