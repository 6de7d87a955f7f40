"""Weights that can copy before they have learnt anything: what followed a word last time is what follows it now.

Worlds that tell the agent what to write (a recipe, a name) ask for that, and a small model finds it out late: of the
two steps it takes, either one alone earns nothing (Olsson et al. 2022, "In-context Learning and Induction Heads"). So
the first two layers begin as these steps. In layer 0 every position looks at the one before it and notes that token,
turned into a direction where no token lies. In layer 1 a position looks for a note of its own token, and says the token
that bears it. All other weights write little at first, so that they do not drown this. All of it trains.
"""

import math

import torch
from torch import Tensor
from transformers import LlamaForCausalLM

ROPE_THETA = 1e6
"""Base of the rotary positions: half of a head's pairs turn so slowly that they tell tokens apart at any distance."""

PRESENCE = 1.0
"""Length of what all embeddings have in common, beside the 1 that is a token's own: positions are found by it."""
FAST, SLOW = 0.15, 0.004
"""Radians per position: pairs that turn faster tell positions apart, those that turn slower compare tokens."""
LOOK_BACK = 40.0
"""Attention score of the position before."""
MATCH = 3.0
"""Scale of queries and keys that compare tokens."""
SAY = 3.0
"""How much louder than itself a position says the token that it found."""
MURMUR = 0.05
"""What is left of the other weights that write into the residual stream."""


@torch.no_grad()
def make_copying(model: LlamaForCausalLM) -> None:
    """Turn a random model, of two layers or more, into one that copies. Draws from torch's own random state."""
    config = model.config
    width, heads, size = (
        config.hidden_size,
        config.num_attention_heads,
        config.hidden_size // config.num_attention_heads,
    )
    common = _unit(torch.randn(width))
    embeddings = model.model.embed_tokens.weight
    embeddings += torch.outer(PRESENCE - embeddings @ common, common)
    for layer in model.model.layers:
        layer.mlp.down_proj.weight *= MURMUR
        layer.self_attn.o_proj.weight *= MURMUR

    speeds = ROPE_THETA ** (-torch.arange(0, size, 2) / size)
    aside = _rotation(width)
    parts = _rotation(width)  # each head carries an equal part of a token
    # Embeddings reach the layers normed to the square root of the width.
    to_residual = math.sqrt((1 + PRESENCE**2) / width)
    look, find = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    look.q_proj.weight.copy_(torch.outer(_here(speeds, width).repeat(heads), common))
    look.k_proj.weight.copy_(torch.outer(_one_ahead(_here(speeds, width), speeds).repeat(heads), common))
    look.v_proj.weight.copy_(parts)
    look.o_proj.weight.copy_(to_residual * aside @ parts.T)
    compare = _comparing(speeds, heads, common)
    find.q_proj.weight.copy_(compare)
    find.k_proj.weight.copy_(compare @ aside.T)
    find.v_proj.weight.copy_(parts)
    find.o_proj.weight.copy_(SAY * to_residual * parts.T)


def _here(speeds: Tensor, width: int) -> Tensor:
    """A head's query that scores keys by nothing but their distance."""
    share = (speeds > FAST).float()
    norm = LOOK_BACK * math.sqrt(2 * len(speeds)) * (1 + PRESENCE**2) / (width * PRESENCE**2)
    return torch.cat([(share / share.sum() * norm).sqrt(), torch.zeros_like(speeds)])


def _one_ahead(query: Tensor, speeds: Tensor) -> Tensor:
    """The key that such a query finds one position after it."""
    first, second = query.chunk(2)
    return torch.cat([first * speeds.cos() - second * speeds.sin(), second * speeds.cos() + first * speeds.sin()])


def _comparing(speeds: Tensor, heads: int, common: Tensor) -> Tensor:
    """Queries of all heads that see only what is a token's own, in the pairs that hardly turn."""
    slow = (speeds < SLOW).float().repeat(2 * heads)
    queries = torch.randn(len(slow), len(common)) * MATCH / math.sqrt(slow.sum() / heads)
    queries -= torch.outer(queries @ common, common)
    return queries * slow[:, None]


def _rotation(width: int) -> Tensor:
    return torch.linalg.qr(torch.randn(width, width))[0]


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()
