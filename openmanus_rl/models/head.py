"""From hidden states to log-probs and entropies, without the matrix of all tokens by the whole vocabulary.

That matrix is the largest thing in training: 8,192 tokens of a vocabulary of 49,152 are 1.6 GB, and its gradient and
what lies between are several times that. Here a slice of the tokens goes through the head at a time, and again in the
backward pass, which costs one more multiplication and keeps nothing but the result.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from openmanus_rl.errors import UserError

LOGITS_AT_ONCE = 2**24
"""Logits that exist at the same time, 64 MB of them. Fewer than that are kept for the backward pass."""


def log_probs_and_entropy(
    model: PreTrainedModel, hidden_ND: Tensor, labels_N: Tensor, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-prob of each label by the distribution that its hidden state gives, and the entropy of that distribution.

    Both in float32 at least, and differentiable.
    """
    if temperature <= 0:
        raise ValueError(f"log-probs need a temperature above 0, not {temperature}")
    at_once = max(1, LOGITS_AT_ONCE // model.config.get_text_config().vocab_size)
    if len(labels_N) <= at_once:
        return _of_slice(model, hidden_ND, labels_N, temperature)
    parts = [
        checkpoint(_of_slice, model, hidden, labels, temperature, use_reentrant=False)
        for hidden, labels in zip(hidden_ND.split(at_once), labels_N.split(at_once), strict=True)
    ]
    log_probs, entropies = zip(*parts, strict=True)
    return torch.cat(log_probs), torch.cat(entropies)


def check_head(model: PreTrainedModel) -> None:
    """Refuse a model whose logits are not just its head on its decoder's output: its log-probs would be wrong."""
    ids = torch.arange(4, device=model.device)[None] % model.config.get_text_config().vocab_size
    with torch.no_grad():
        expected = model(input_ids=ids, use_cache=False).logits
        ours = _logits(model, model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state)
    if not torch.allclose(ours.float(), expected.float(), rtol=1e-3, atol=1e-3):
        raise UserError(
            f"{type(model).__name__} does more to its logits than its output layer and final_logit_softcapping",
            "Models that scale their logits otherwise are not supported yet.",
        )


def _of_slice(model: PreTrainedModel, hidden_ND: Tensor, labels_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits_NV = _logits(model, hidden_ND)
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32)) / temperature
    normaliser_N = logits_NV.logsumexp(-1)
    log_probs_N = logits_NV.gather(-1, labels_N[:, None]).squeeze(-1) - normaliser_N
    mean_logit_N = ((logits_NV - normaliser_N[:, None]).exp() * logits_NV).sum(-1)
    return log_probs_N, normaliser_N - mean_logit_N


def _logits(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    logits: Tensor = model.get_output_embeddings()(hidden)
    cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
    return logits if cap is None else cap * torch.tanh(logits / cap)
