"""Attention over tokens that lie in one long sequence, whatever they are tokens of.

A sequence may hold many rows one after another, and rows may share a beginning that is there once. Then no causal mask
is right. Attention is computed in blocks: the tokens that only one row has, with all tokens that stand before them in
that row as keys. All other layers of a model look at each token by itself and need not know.

It is an attention function of transformers' registry, and it is sdpa for whoever passes no blocks. But where one new
token looks back and heads share their keys, the keys are not copied for each head as transformers does.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

IN_BLOCKS = "sdpa_in_blocks"
"""Its name in transformers' registry."""


@dataclass(frozen=True)
class Block:
    """Queries of B parts of rows, Q at most in each, and the K keys that they may look at; all by their places."""

    queries_BQ: Tensor
    keys_BK: Tensor
    mask_BQK: Tensor | None
    """What is added to the scores; None where the parts are whole rows: each token sees itself and those before it."""


@dataclass(frozen=True)
class Blocks:
    """Every token is a query of one block."""

    blocks: tuple[Block, ...]
    found: Tensor
    """For each place, where its output stands among the outputs of all blocks."""


def take_blocks(model: PreTrainedModel) -> None:
    """Make the model's forward take `blocks`; without them it computes as before."""
    model.set_attn_implementation(IN_BLOCKS)


def block_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    blocks: Blocks | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Tensors are [1, heads, tokens, width of a head]; the output is [1, tokens, heads, width]."""
    one_token_of_shared_keys = query.shape[2] == 1 and query.shape[1] > key.shape[1]
    if blocks is None and one_token_of_shared_keys and options.get("position_bias") is None:
        return _next_token(query, key, value, attention_mask, options.get("scaling")), None
    if blocks is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return output, None
    queries, keys, values = (_by_place(tensor) for tensor in (query, key, value))
    outputs = []
    for block in blocks.blocks:
        mask = None if block.mask_BQK is None else block.mask_BQK.to(query.dtype)[:, None]
        output_BQHD, _ = sdpa_attention_forward(
            module,
            _gathered(queries, block.queries_BQ, query),
            _gathered(keys, block.keys_BK, key),
            _gathered(values, block.keys_BK, value),
            mask,
            **{**options, "is_causal": mask is None},
        )
        outputs.append(output_BQHD.flatten(0, 1).flatten(1))
    return torch.cat(outputs).index_select(0, blocks.found).view(1, query.shape[2], query.shape[1], -1), None


def _next_token(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None) -> Tensor:
    """The heads that share keys, as if they were so many tokens of one head: all of them may look at the same keys."""
    heads, width = query.shape[1], query.shape[3]
    sharing = query.reshape(query.shape[0], key.shape[1], heads // key.shape[1], width)
    output = scaled_dot_product_attention(sharing, key, value, attn_mask=mask, scale=scaling)
    return output.reshape(query.shape[0], 1, heads, width)


def _by_place(tensor: Tensor) -> Tensor:
    """[1, heads, tokens, width] to [tokens, heads · width]."""
    return tensor[0].transpose(0, 1).flatten(1)


def _gathered(by_place: Tensor, places: Tensor, like: Tensor) -> Tensor:
    """The vectors at B × N places as [B, heads, N, width], with the heads of `like`."""
    return by_place.index_select(0, places.flatten()).view(*places.shape, *like.shape[1::2]).transpose(1, 2)


AttentionInterface.register(IN_BLOCKS, block_attention)
AttentionMaskInterface.register(IN_BLOCKS, sdpa_mask)
