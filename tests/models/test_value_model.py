import pytest
import torch

from openmanus_rl.errors import UserError
from openmanus_rl.models.layout import Tokens
from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.models.value import ValueModel

IDS = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
ROWS = Tokens.of(IDS)


def trained(model: ValueModel) -> ValueModel:
    """One step of training, so that neither trunk nor head is what it was."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with torch.no_grad():
        model.head.weight.fill_(0.1)
    (model(ROWS) - 1.0).pow(2).mean().backward()
    optimizer.step()
    return model


def test_a_new_critic_says_zero_everywhere_in_float32(tiny_directory):
    model = ValueModel.load(tiny_directory, dtype="bfloat16")
    values = model(ROWS)
    assert values.dtype == torch.float32
    assert values.shape == (IDS.numel(),)
    assert torch.count_nonzero(values) == 0


def test_a_critic_from_a_module_equals_one_from_its_directory(tiny_directory):
    built = ValueModel.from_causal_lm(load_causal_lm(tiny_directory))
    loaded = ValueModel.load(tiny_directory)
    for model in (built, loaded):
        torch.nn.init.constant_(model.head.weight, 0.1)
    assert torch.equal(built(ROWS), loaded(ROWS))


def test_training_the_critic_does_not_touch_the_policy(tiny_directory):
    policy = load_causal_lm(tiny_directory)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    critic = trained(ValueModel.from_causal_lm(policy))
    assert all(torch.equal(policy.state_dict()[name], tensor) for name, tensor in before.items())
    assert not torch.equal(critic.trunk.embed_tokens.weight, policy.get_input_embeddings().weight)


def test_a_saved_critic_loads_again_equal(tiny_directory, tmp_path):
    critic = trained(ValueModel.load(tiny_directory))
    critic.save(tmp_path / "critic")
    again = ValueModel.load(tmp_path / "critic")
    values = critic(ROWS)
    assert torch.count_nonzero(values) == values.numel()
    assert torch.equal(again(ROWS), values)


def test_padding_does_not_change_a_value(tiny_directory):
    critic = trained(ValueModel.load(tiny_directory))
    alone = critic(Tokens.of(IDS[1:, :2]))
    torch.testing.assert_close(critic(ROWS)[4:6], alone)


def test_a_critic_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no model at"):
        ValueModel.load(tmp_path)
