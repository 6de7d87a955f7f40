"""With LoRA only adapters go to vLLM: none at the start, and the newest ones after an update."""

import asyncio

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from small_models import build, plain_log_probs, random_ids
from vllm_cases import run, running, saved_llama, vllm_config

from openmanus_rl.inference.base import FinishReason, SamplingParams

RANK, ALPHA = 4, 8.0


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    config = vllm_config()
    lora = config.model.lora.model_copy(update={"rank": RANK, "alpha": ALPHA})
    config = config.model_copy(update={"model": config.model.model_copy(update={"lora": lora})})
    with running(saved_llama(tmp_path_factory.mktemp("model")), config) as engine:
        yield engine


def adapted(seed: int):
    """The model with random adapters on every linear layer but the head."""
    settings = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(build("vllm llama"), settings)
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=chance) * 0.2)
    return model.eval()


def test_the_base_model_samples_until_adapters_come_and_the_newest_do_afterwards(engine):
    prompt = random_ids(150, seed=0)

    async def scenario() -> None:
        models = [build("vllm llama"), adapted(seed=1), adapted(seed=2), adapted(seed=3)]
        for version, model in enumerate(models):
            if version:
                await engine.update_weights(get_peft_model_state_dict(model), version)
            completion = await engine.generate(prompt, SamplingParams(10), seed=0, session="a")
            assert completion.versions == [version] * 10
            expected = plain_log_probs(model, prompt + completion.token_ids, 10)
            assert completion.log_probs == pytest.approx(expected, abs=1e-4)
            assert await engine.score(prompt) == pytest.approx(plain_log_probs(model, prompt, 149), abs=1e-4)

    run(scenario())


def test_close_ends_what_runs_and_refuses_what_comes(engine):
    """The last test with this engine."""

    async def scenario() -> None:
        endless = asyncio.create_task(engine.generate([1], SamplingParams(4000), seed=0, session="b"))
        await engine.generate([1], SamplingParams(1), seed=0, session="a")
        await engine.close()
        assert (await endless).finish_reason is FinishReason.ABORTED
        with pytest.raises(RuntimeError, match="closed"):
            await engine.generate([1], SamplingParams(1), seed=0, session="c")
        engine.release("b")
        await engine.close()

    run(scenario())
