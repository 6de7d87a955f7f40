"""Adapters as part of the weights they belong to, so that sampling costs what it costs without any."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from openmanus_rl.config.schema import LoraConfig
from openmanus_rl.errors import UserError
from openmanus_rl.models.lora import adapted_layers


class MergedAdapters:
    """A model whose adapted layers hold their own weights plus what the latest adapters add.

    Their own weights are kept beside: nothing is subtracted again, so rounding does not pile up over updates.
    """

    def __init__(self, model: nn.Module, lora: LoraConfig) -> None:
        self._weights = dict(model.named_parameters())
        self._scale = lora.alpha / lora.rank
        self._own: dict[str, Tensor] = {}

    def take(self, adapters: Mapping[str, Tensor]) -> None:
        """Put adapters, under the names that files have, in the place of those before."""
        layers = adapted_layers(adapters)
        if layers.keys() - self._weights.keys() or (self._own and layers.keys() != self._own.keys()):
            told = sorted(layers.keys() ^ (self._own or self._weights).keys())
            raise UserError(
                f"the new adapters are not those of this model: they differ in {told[:3]}",
                "Pass the adapters of an actor of the same configuration.",
            )
        with torch.inference_mode(mode=False), torch.no_grad():
            for name, (down, up) in layers.items():
                weight = self._weights[name]
                own = self._own.setdefault(name, weight.detach().clone())
                weight.copy_(torch.addmm(own, up.to(own), down.to(own), alpha=self._scale))
