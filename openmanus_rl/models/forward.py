"""The trainer's forward pass: log-probs of chosen tokens, and micro-batches that waste little on padding."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openmanus_rl.errors import UserError


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
    if temperature <= 0:
        raise ValueError(f"log-probs need a temperature above 0, not {temperature}")
    decoder = model.get_decoder()
    hidden_RTD = decoder(
        input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
    ).last_hidden_state
    logits_NV = _head(model, hidden_RTD[:, :-1][select_mask[:, 1:]]).float() / temperature
    labels_N = input_ids[select_mask]
    normaliser_N = logits_NV.logsumexp(-1)
    log_probs_N = logits_NV.gather(-1, labels_N[:, None]).squeeze(-1) - normaliser_N
    mean_logit_N = ((logits_NV - normaliser_N[:, None]).exp() * logits_NV).sum(-1)
    return _spread(log_probs_N, select_mask), _spread(normaliser_N - mean_logit_N, select_mask)


def check_head(model: PreTrainedModel) -> None:
    """Refuse a model whose logits are not just its head on its decoder's output: its log-probs would be wrong."""
    ids = torch.arange(4, device=model.device)[None] % model.config.get_text_config().vocab_size
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        ours = _head(model, model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state)
    if not torch.allclose(ours.float(), expected.float(), rtol=1e-3, atol=1e-3):
        raise UserError(
            f"{type(model).__name__} does more to its logits than its output layer and final_logit_softcapping",
            "Models that scale their logits otherwise are not supported yet.",
        )


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Rows in batches of like length, the longest first; each holds at most `token_budget` tokens with its padding.

    A row longer than the budget stands alone. With the longest first, memory that does not suffice shows at once.
    """
    batches: list[list[int]] = []
    width = 0
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        if batches and width * (len(batches[-1]) + 1) <= token_budget:
            batches[-1].append(row)
        else:
            batches.append([row])
            width = lengths[row]
    return batches


def _head(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    logits: Tensor = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _spread(values_N: Tensor, mask_RT: Tensor) -> Tensor:
    """The values at the mask's positions, 0 elsewhere."""
    return torch.zeros(mask_RT.shape, dtype=values_N.dtype, device=values_N.device).masked_scatter(mask_RT, values_N)
