"""Which layout is cheapest for some rows: the work of each is counted, and weighed as this kind of device weighs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import get_layer_types_and_kwargs

from openmanus_rl.errors import UserError
from openmanus_rl.models.attention import take_blocks
from openmanus_rl.models.forward import hidden_states
from openmanus_rl.models.layout import LAYOUTS, Kind, Layout, tree_layouts
from openmanus_rl.models.trie import Row

Choice = Literal["auto", "tree", "packed", "sorted"]


@dataclass(frozen=True)
class Device:
    """What things cost, relative to multiplying a token's vector with one weight, forward and backward."""

    pair: float
    """A number of a query times one of a key, and the same for the value."""
    gathered: float
    """A number copied into a block and its gradient added back."""
    call: float
    """Starting one attention, in one layer."""
    pass_: float
    """Starting one layer."""
    cache: int
    """Tokens in one pass, above which activations leave the caches."""
    beyond_cache: float
    """How many times as much a weight costs there."""


DEVICES = {
    "cpu": Device(pair=0.7, gathered=40.0, call=1.3e6, pass_=3e6, cache=1024, beyond_cache=1.15),
    # Estimated from bandwidth and launch times, not measured.
    "cuda": Device(pair=0.5, gathered=10.0, call=1e9, pass_=1e9, cache=1 << 40, beyond_cache=1.0),
}


class Planner:
    """Plans for one model. The same rows always get the same plan: counts decide, not clocks."""

    def __init__(self, decoder: PreTrainedModel, choice: Choice, budget: int, device: torch.device) -> None:
        """For a decoder that is whole yet and will compute on `device`; it takes blocks from then on."""
        config = decoder.config.get_text_config()
        self.kinds = _kinds(decoder, choice)
        self.budget = budget
        self.device = DEVICES.get(device.type, DEVICES["cuda"])
        self.layers: int = config.num_hidden_layers
        self.width: int = config.hidden_size
        embeddings = {id(weight) for weight in decoder.get_input_embeddings().parameters()}
        self.weights = sum(weight.numel() for weight in decoder.parameters() if id(weight) not in embeddings)

    def plan(self, ids: Sequence[Row]) -> list[Layout]:
        """All rows once, in layouts of at most `budget` tokens (or of one row)."""
        if not ids:
            return []
        budgets = sorted({min(self.budget, self.device.cache), self.budget})
        plans = [list(LAYOUTS[kind](ids, budget)) for kind in self.kinds for budget in budgets]
        return min(plans, key=lambda plan: sum(map(self.cost, plan)))

    def cost(self, layout: Layout) -> float:
        """In weights that a token's vector is multiplied with."""
        device = self.device
        weights = self.weights * (1.0 if layout.computed <= device.cache else device.beyond_cache)
        numbers = 2 * self.width * device.pair * layout.pairs + self.width * device.gathered * layout.gathered
        starts = device.call * max(1, len(layout.groups)) + device.pass_
        return layout.computed * weights + self.layers * (numbers + starts)


def _kinds(decoder: PreTrainedModel, choice: Choice) -> list[Kind]:
    """The layouts that may be chosen: without blocks, only the one that needs none."""
    if choice == "sorted":
        return ["sorted"]
    if _computes_right_in_blocks(decoder):
        return list(LAYOUTS) if choice == "auto" else [choice]
    if choice == "auto":
        return ["sorted"]
    raise UserError(
        f"layout={choice} does not fit {type(decoder).__name__}: its attention is not computed right in blocks",
        "Set layout=sorted, or leave it at auto.",
    )


def _computes_right_in_blocks(decoder: PreTrainedModel) -> bool:
    """Tried on two short rows that share a beginning."""
    config = decoder.config.get_text_config()
    if set(get_layer_types_and_kwargs(config)[0]) != {"full_attention"}:
        return False
    take_blocks(decoder)
    tokens = torch.arange(9) % config.vocab_size
    ids = [tokens.numpy(), torch.cat([tokens[:5], tokens[:2]]).numpy()]
    (layout,) = tree_layouts(ids, budget=100)
    with torch.no_grad():
        ours = hidden_states(decoder, layout.tokens(ids, decoder.device))
        for row, row_ids in enumerate(ids):
            row_tokens = torch.from_numpy(row_ids)[None].to(decoder.device)
            expected = decoder(input_ids=row_tokens, use_cache=False).last_hidden_state[0]
            if not torch.allclose(ours[layout.places[row]].float(), expected.float(), rtol=1e-3, atol=1e-3):
                return False
    return True
