"""The critic's model: a decoder with one number at each token."""

import copy
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from openmanus_rl.errors import UserError
from openmanus_rl.files import written_aside
from openmanus_rl.models.forward import hidden_states
from openmanus_rl.models.layout import Tokens

HEAD_FILE = "value_head.safetensors"


class ValueHead(nn.Linear):
    """From hidden states to values. It starts at zero: before it has learnt, every state is worth nothing."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        super().__init__(trunk.config.get_text_config().hidden_size, 1, device=trunk.device, dtype=torch.float32)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """N values in float32, whatever the trunk computes in."""
        with torch.autocast(hidden_ND.device.type, enabled=False):
            return super().forward(hidden_ND.float()).squeeze(-1)


class ValueModel(nn.Module):
    """A trunk and its head."""

    def __init__(self, trunk: PreTrainedModel) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = ValueHead(trunk)

    @classmethod
    def from_causal_lm(cls, model: PreTrainedModel) -> "ValueModel":
        """A critic on a copy of the policy's decoder; the policy itself is not touched by its training."""
        return cls(copy.deepcopy(model.get_decoder()))

    @classmethod
    def load(cls, directory: Path, dtype: str | torch.dtype = "float32", attn: str = "sdpa") -> "ValueModel":
        """A saved critic, or a new one on the decoder of a causal model's directory."""
        directory = Path(directory)
        if not (directory / "config.json").is_file():
            raise UserError(
                f"there is no model at {directory}", "A critic starts from a model directory with config.json."
            )
        model = cls(AutoModel.from_pretrained(directory, dtype=dtype, attn_implementation=attn))
        if (directory / HEAD_FILE).is_file():
            model.head.load_state_dict(load_file(directory / HEAD_FILE))
        return model

    def save(self, directory: Path, weights: dict[str, Tensor] | None = None) -> None:
        """Write the trunk as a Hugging Face directory with the head beside it, all or nothing.

        `weights` is the whole state dict, if the model itself is sharded.
        """
        state = self.state_dict() if weights is None else weights
        with written_aside(Path(directory)) as aside:
            self.trunk.save_pretrained(aside, state_dict=_part(state, "trunk."))
            save_file(_part(state, "head."), aside / HEAD_FILE)

    def forward(self, tokens: Tokens) -> Tensor:
        """The value at each place, in float32."""
        values: Tensor = self.head(hidden_states(self.trunk, tokens))
        return values


def _part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
