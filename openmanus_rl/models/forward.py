"""The trainer's forward pass: hidden states of tokens in any layout, and log-probs of chosen tokens."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openmanus_rl.models.head import log_probs_and_entropy
from openmanus_rl.models.layout import Tokens


def hidden_states(decoder: PreTrainedModel, tokens: Tokens) -> Tensor:
    """The decoder's output at every place, [places, width]; with blocks, the decoder is one that takes them."""
    options: dict[str, object] = {}
    if tokens.blocks is not None:
        # A mask of four dimensions is passed on as it is; with any other, one of all tokens by all would be made.
        options = {"blocks": tokens.blocks, "attention_mask": torch.zeros(1, 1, 1, 1, device=tokens.input_ids.device)}
    output = decoder(input_ids=tokens.input_ids, position_ids=tokens.position_ids, use_cache=False, **options)
    hidden: Tensor = output.last_hidden_state
    return hidden.flatten(0, 1)


def token_log_probs(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    position_ids: Tensor,
    select_mask: Tensor,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Log-prob of the token at each selected position, and the entropy of the distribution it came from.

    All tensors are [rows, tokens]; the results are float32 and 0 where nothing is selected. The token at t is
    predicted from t - 1, so the first position cannot be selected. Only the selected positions go through the head:
    most tokens of an episode are observations, and the head of a small model is a large part of its work.
    """
    select_mask = select_mask.bool()
    if select_mask[:, 0].any():
        raise ValueError("the first token of a row has no log-prob: nothing stands before it")
    decoder = model.get_decoder()
    hidden_RTD = decoder(
        input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
    ).last_hidden_state
    log_probs_N, entropy_N = log_probs_and_entropy(
        model, hidden_RTD[:, :-1][select_mask[:, 1:]], input_ids[select_mask], temperature
    )
    return _spread(log_probs_N, select_mask), _spread(entropy_N, select_mask)


def _spread(values_N: Tensor, mask_RT: Tensor) -> Tensor:
    """The values at the mask's positions, 0 elsewhere."""
    return torch.zeros(mask_RT.shape, dtype=values_N.dtype, device=values_N.device).masked_scatter(mask_RT, values_N)
