"""In every layout a row's tokens get the hidden states, and the weights the gradients, of the row computed alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from openmanus_rl.errors import UserError
from openmanus_rl.models.attention import take_blocks
from openmanus_rl.models.forward import hidden_states
from openmanus_rl.models.layout import LAYOUTS, Layout
from openmanus_rl.models.planner import Planner
from openmanus_rl.models.trie import Trie

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}


@st.composite
def tries(draw):
    """Rows that branch off each other anywhere, with rows that are equal and rows that are others' beginnings."""
    rows = [draw(st.lists(st.integers(0, 5), min_size=1, max_size=14))]
    for _ in range(draw(st.integers(0, 9))):
        stem = draw(st.sampled_from(rows))
        kept = draw(st.integers(0, len(stem)))
        rows.append([*stem[:kept], *draw(st.lists(st.integers(0, 5), min_size=not kept, max_size=14))])
    return [np.array(row) for row in rows]


@pytest.fixture(scope="module")
def decoder():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).double().eval().get_decoder()
    take_blocks(model)
    return model


def computed(rows):
    return len({tuple(row[: end + 1]) for row in rows for end in range(len(row))})


@given(rows=tries(), budget=st.integers(1, 60))
def test_a_trie_has_every_beginning_once_and_its_parts_every_row_once(rows, budget):
    trie = Trie.of(rows)
    assert trie.tokens == computed(rows)
    parts = trie.within(budget)
    assert sorted(row for part in parts for row in part.order) == list(range(len(rows)))
    for part in parts:
        assert part.tokens == computed([rows[row] for row in part.order])
        assert part.tokens <= budget or len(part.order) == 1


def test_a_trie_is_cut_where_least_is_shared():
    rows = [np.array([group] * 10 + [member]) for group in range(3) for member in range(3)]
    assert [len(part.order) for part in Trie.of(rows).within(25)] == [3, 3, 3]
    assert [part.tokens for part in Trie.of(rows).trees(5)] == [13, 13, 13]


def layouts_of(rows, kind, budget):
    layouts = list(LAYOUTS[kind](rows, budget))
    assert sorted(row for layout in layouts for row in layout.rows) == list(range(len(rows)))
    return layouts


def gradient(decoder, total):
    decoder.zero_grad()
    total.backward()
    return torch.cat([weight.grad.flatten() for weight in decoder.parameters()])


@settings(max_examples=25, deadline=None)
@given(rows=tries(), kind=st.sampled_from(sorted(LAYOUTS)), budget=st.integers(1, 120), seed=st.integers(0, 99))
def test_hidden_states_and_gradients_are_those_of_each_row_alone(decoder, rows, kind, budget, seed):
    dice = torch.Generator().manual_seed(seed)
    weights = [torch.randn(len(row), 16, generator=dice, dtype=torch.float64) for row in rows]
    alone = [decoder(input_ids=torch.from_numpy(row)[None], use_cache=False).last_hidden_state[0] for row in rows]
    expected = gradient(decoder, sum((weight * hidden).sum() for weight, hidden in zip(weights, alone, strict=True)))
    total = torch.zeros((), dtype=torch.float64)
    for layout in layouts_of(rows, kind, budget):
        hidden = hidden_states(decoder, layout.tokens(rows, CPU))
        for row in layout.rows:
            own = hidden[layout.places[row]]
            torch.testing.assert_close(own.detach(), alone[row].detach(), rtol=1e-6, atol=1e-6)
            total = total + (weights[row] * own).sum()
    assert float((gradient(decoder, total) - expected).norm() / expected.norm()) < 1e-6


@pytest.mark.parametrize("kind", LAYOUTS)
def test_in_float32_gradients_agree_to_a_hundred_thousandth(kind):
    torch.manual_seed(0)
    decoder = LlamaForCausalLM(LlamaConfig(**{**SIZES, "initializer_range": 0.05})).eval().get_decoder()
    take_blocks(decoder)
    prompt, rows = torch.randint(64, (40,)), []
    for length in (5, 9, 9, 30, 2):
        rows.append(torch.cat([prompt, torch.randint(64, (length,))]).numpy())
    targets = [torch.randn(len(row), 16) for row in rows]

    def loss(row, hidden):
        return (targets[row] * hidden).sum()

    alone = [decoder(input_ids=torch.from_numpy(row)[None], use_cache=False).last_hidden_state[0] for row in rows]
    expected = gradient(decoder, sum(loss(row, hidden) for row, hidden in enumerate(alone)))
    (layout,) = layouts_of(rows, kind, 1000)
    hidden = hidden_states(decoder, layout.tokens(rows, CPU))
    ours = gradient(decoder, sum(loss(row, hidden[layout.places[row]]) for row in layout.rows))
    assert float((ours - expected).norm() / expected.norm()) < 1e-5


def planner(decoder, choice="auto", budget=8192):
    return Planner(decoder, choice, budget, CPU)


def group(prompt, own, size, dice):
    beginning = dice.integers(0, 64, prompt)
    return [np.concatenate([beginning, dice.integers(0, 64, dice.integers(1, own + 1))]) for _ in range(size)]


def kinds(plan: list[Layout]):
    return {layout.kind for layout in plan}


def test_the_planner_computes_shared_beginnings_once_and_pads_or_packs_what_shares_nothing(decoder):
    dice = np.random.default_rng(0)
    assert kinds(planner(decoder).plan(group(300, 60, 8, dice))) == {"tree"}
    assert kinds(planner(decoder).plan([dice.integers(0, 64, 50) for _ in range(8)])) == {"sorted"}
    apart = [np.concatenate([[first], dice.integers(0, 64, 10 + 17 * first)]) for first in range(24)]
    assert "tree" not in kinds(planner(decoder).plan(apart))


def test_the_plan_is_the_cheapest_of_the_three_and_always_the_same(decoder):
    dice = np.random.default_rng(1)
    rows = group(50, 30, 8, dice) + group(5, 90, 8, dice)
    chosen = planner(decoder)
    costs = {kind: sum(map(chosen.cost, planner(decoder, kind).plan(rows))) for kind in LAYOUTS}
    plan = chosen.plan(rows)
    assert sum(map(chosen.cost, plan)) == min(costs.values())
    assert [layout.rows for layout in planner(decoder).plan(rows)] == [layout.rows for layout in plan]


def test_a_model_that_does_not_look_at_all_tokens_before_is_only_sorted():
    """A window over the last few tokens is no matter of blocks."""
    windowed = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=4)).get_decoder()
    rows = group(50, 9, 8, np.random.default_rng(0))
    assert kinds(planner(windowed).plan(rows)) == {"sorted"}
    with pytest.raises(UserError, match="layout=tree does not fit MistralModel"):
        planner(windowed, "tree")


def test_no_rows_need_no_plan(decoder):
    assert planner(decoder).plan([]) == []


def test_the_next_token_of_heads_that_share_keys_is_that_of_transformers():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
    ids, mask = torch.randint(0, 64, (4, 12)), torch.ones(4, 12, dtype=torch.long)
    mask[::2, :5] = 0
    expected = model(ids, attention_mask=mask).logits[:, -1]
    take_blocks(model)
    cache = model(ids[:, :-1], attention_mask=mask[:, :-1], use_cache=True).past_key_values
    found = model(ids[:, -1:], attention_mask=mask, past_key_values=cache).logits[:, -1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
