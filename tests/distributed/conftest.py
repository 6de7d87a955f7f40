import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """A small model whose next token depends strongly on all before it."""
    torch.manual_seed(0)
    shape = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = LlamaConfig(**shape, num_attention_heads=2, max_position_embeddings=512)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    directory = tmp_path_factory.mktemp("model")
    model.save_pretrained(directory)
    return str(directory)
