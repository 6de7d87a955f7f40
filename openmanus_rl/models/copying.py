"""Weights that can copy before they have learnt anything: what followed these words last time is what follows now.

Worlds that tell the agent what to write (a recipe, a name) ask for that, and a small model finds it out late: of the
two steps it takes, either one alone earns nothing (Olsson et al. 2022, "In-context Learning and Induction Heads"). So
the first two layers begin as these steps. In layer 0 the heads look one, two, three … positions back, and each
position notes those tokens: the token k back is turned k times, into a direction where no token lies. In layer 1 a
position looks for the one whose notes, turned back once, are its own token and its own notes, and says the token that
bears them. So the longest run of words that was said before is gone on with, and not any that ended in the same number
or comma. All other weights write little at first, so that they do not drown this. All of it trains.
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
"""Attention score of the position that a head of layer 0 looks for."""
FADE = 0.7
"""How much of a note there is for one of a position less far back."""
MATCH = 3.0
"""Scale of queries and keys that compare tokens."""
SAY = 3.0
"""How much louder than itself a position says the token that it found."""
LOUD = 3.0
"""Scale of the last norm: at 1 the words that are not meant, all together, would outweigh two that are."""
MURMUR = 0.05
"""What is left of the other weights that write into the residual stream."""


@torch.no_grad()
def make_copying(model: LlamaForCausalLM) -> None:
    """Turn a random model, of two layers or more, into one that copies. Draws from torch's own random state."""
    config = model.config
    width, heads, size = config.hidden_size, config.num_attention_heads, config.head_dim
    common = _unit(torch.randn(width))
    embeddings = model.model.embed_tokens.weight
    embeddings += torch.outer(PRESENCE - embeddings @ common, common)
    model.model.norm.weight *= LOUD
    for layer in model.model.layers:
        layer.mlp.down_proj.weight *= MURMUR
        layer.self_attn.o_proj.weight *= MURMUR

    speeds = ROPE_THETA ** (-torch.arange(0, size, 2) / size)
    turn = _orthonormal(width, width)
    noted = _orthonormal(width, size).T  # what a head carries of a token, the same part in each
    said = _orthonormal(heads * size, width)  # together the heads carry all of it
    # Embeddings reach the layers normed to the square root of the width.
    to_residual = math.sqrt((1 + PRESENCE**2) / width)
    look, find = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    here = _here(speeds, width)
    back = range(1, heads + 1)
    look.q_proj.weight.copy_(torch.outer(here.repeat(heads), common))
    look.k_proj.weight.copy_(torch.outer(torch.cat([_ahead(here, steps, speeds) for steps in back]), common))
    look.v_proj.weight.copy_(noted.repeat(heads, 1))
    notes = [FADE ** (steps - 1) * torch.linalg.matrix_power(turn, steps) @ noted.T for steps in back]
    look.o_proj.weight.copy_(math.sqrt(width / size) * to_residual * torch.cat(notes, dim=1))
    compare = _comparing(speeds, heads, common)
    find.q_proj.weight.copy_(compare)
    find.k_proj.weight.copy_(compare @ turn.T)
    find.v_proj.weight.copy_(said)
    find.o_proj.weight.copy_(SAY * to_residual * said.T)


def _here(speeds: Tensor, width: int) -> Tensor:
    """A head's query that scores keys by nothing but their distance."""
    share = (speeds > FAST).float()
    norm = LOOK_BACK * math.sqrt(2 * len(speeds)) * (1 + PRESENCE**2) / (width * PRESENCE**2)
    return torch.cat([(share / share.sum() * norm).sqrt(), torch.zeros_like(speeds)])


def _ahead(query: Tensor, steps: int, speeds: Tensor) -> Tensor:
    """The key that such a query finds so many positions after it."""
    first, second = query.chunk(2)
    cos, sin = (steps * speeds).cos(), (steps * speeds).sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin])


def _comparing(speeds: Tensor, heads: int, common: Tensor) -> Tensor:
    """Queries of all heads that see only what is a token's own, in the pairs that hardly turn."""
    slow = (speeds < SLOW).float().repeat(2 * heads)
    queries = torch.randn(len(slow), len(common)) * MATCH / math.sqrt(slow.sum() / heads)
    queries -= torch.outer(queries @ common, common)
    return queries * slow[:, None]


def _orthonormal(rows: int, columns: int) -> Tensor:
    """Random columns of length 1 at right angles."""
    return torch.linalg.qr(torch.randn(rows, columns))[0]


def _unit(vector: Tensor) -> Tensor:
    return vector / vector.norm()
