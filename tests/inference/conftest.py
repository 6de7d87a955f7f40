import pytest
from small_models import build
from transformers import PreTrainedModel


@pytest.fixture
def llama() -> PreTrainedModel:
    return build("llama")


@pytest.fixture(params=["llama", "qwen3", "gpt2"])
def any_model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return build(request.param)
