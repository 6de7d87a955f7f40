"""The endpoint engine against vLLM's own OpenAI server, a stranger's program."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from openmanus_rl.config.schema import EndpointConfig
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import FinishReason, SamplingParams
from openmanus_rl.inference.endpoint import EndpointEngine
from openmanus_rl.models.plain_chat import PlainChat
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model

CHAT = PlainChat()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The URL of vLLM with a random model."""
    model = tmp_path_factory.mktemp("vllm") / "model"
    build_tiny_model(model, ["Thought: go\nAction: up", "a room with a door"], TinyModelSpec(heads=4), 0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = (
        f"--served-model-name mine --host 127.0.0.1 --port {port} --dtype float32 --enforce-eager --max-model-len 256 "
        "--gpu-memory-utilization 0.2 --kv-cache-memory-bytes 268435456"
    )
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), *words.split()]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/health", server)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.send_signal(signal.SIGINT)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()


def wait_for(url: str, server: subprocess.Popen) -> None:
    give_up = time.monotonic() + 300
    while time.monotonic() < give_up:
        assert server.poll() is None, "vLLM ended"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError("vLLM is not up after five minutes")


def ask(url, content, model="mine"):
    async def asked():
        engine = EndpointEngine(EndpointConfig(url=url, model=model, token_budget=10_000))
        prompt = CHAT.prompt_ids([{"role": "user", "content": content}])
        try:
            sampling = SamplingParams(max_tokens=8)
            calls = [engine.generate(prompt, sampling, seed=3, session=str(number)) for number in range(4)]
            return await asyncio.gather(*calls), engine.tokens_used
        finally:
            await engine.close()

    return asyncio.run(asked())


@pytest.mark.slow
def test_vllms_server_answers_within_the_budget_and_from_the_seed(served):
    completions, used = ask(served, "a room with a door")
    assert {one.finish_reason for one in completions} <= {FinishReason.STOP, FinishReason.LENGTH}
    assert len({tuple(one.token_ids) for one in completions}) == 1, "the same seed, the same answer"
    assert used > 4 * 8


@pytest.mark.slow
def test_vllms_refusals_are_understood(served):
    completions, _ = ask(served, "a room with a door " * 200)
    assert {one.finish_reason for one in completions} == {FinishReason.CONTEXT}
    with pytest.raises(UserError, match="does not exist"):
        ask(served, "a room", model="another")
