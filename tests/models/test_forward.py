import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from openmanus_rl.models.forward import token_log_probs
from openmanus_rl.models.head import check_head
from openmanus_rl.models.layout import micro_batches
from openmanus_rl.models.load import load_causal_lm


@pytest.fixture(scope="module")
def model(tiny_directory):
    return load_causal_lm(tiny_directory)


def rows():
    """Three rows: padded on the left, on the right, and not at all, with scattered selections."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 250, (3, 12), generator=generator)
    attention = torch.ones(3, 12, dtype=torch.long)
    attention[0, :4] = 0
    attention[1, 9:] = 0
    positions = (attention.cumsum(-1) - 1).clamp(min=0)
    select = (torch.rand(3, 12, generator=generator) < 0.5) & attention.bool()
    select[:, 0] = False
    select[0, 4] = False
    return ids, attention, positions, select


def brute_force(model, ids, attention, select, temperature):
    """Each row on its own, without padding, through the whole model."""
    log_probs, entropy = torch.zeros(ids.shape), torch.zeros(ids.shape)
    for row in range(len(ids)):
        real = attention[row].nonzero().squeeze(-1)
        distribution = torch.distributions.Categorical(logits=model(ids[row][real][None]).logits[0] / temperature)
        for place, column in enumerate(real.tolist()):
            if select[row, column]:
                log_probs[row, column] = distribution.logits[place - 1, ids[row, column]]
                entropy[row, column] = distribution.entropy()[place - 1]
    return log_probs, entropy


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropy_equal_the_whole_models(model, temperature):
    ids, attention, positions, select = rows()
    log_probs, entropy = token_log_probs(model, ids, attention, positions, select, temperature)
    expected_log_probs, expected_entropy = brute_force(model, ids, attention, select, temperature)
    torch.testing.assert_close(log_probs, expected_log_probs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, expected_entropy, atol=1e-5, rtol=1e-5)


def test_the_gradient_equals_the_whole_models(model):
    ids, attention, positions, select = rows()

    def gradient(log_probs, entropy):
        model.zero_grad()
        (log_probs.sum() + 0.1 * entropy.sum()).backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    ours = gradient(*token_log_probs(model, ids, attention, positions, select, 1.0))
    expected = gradient(*brute_force(model, ids, attention, select, 1.0))
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-3)


def test_a_batch_with_nothing_selected_has_a_zero_gradient(model):
    ids, attention, positions, select = rows()
    model.zero_grad()
    log_probs, _ = token_log_probs(model, ids, attention, positions, torch.zeros_like(select))
    log_probs.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_the_first_token_cannot_be_selected(model):
    ids, attention, positions, select = rows()
    select[2, 0] = True
    with pytest.raises(ValueError, match="first token"):
        token_log_probs(model, ids, attention, positions, select)


def test_capped_logits_are_capped_here_too():
    config = AutoConfig.for_model(
        "gemma2",
        vocab_size=256,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        final_logit_softcapping=2.0,
        initializer_range=1.0,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    check_head(model)
    ids, attention, positions, select = rows()
    log_probs, _ = token_log_probs(model, ids, attention, positions, select)
    expected, _ = brute_force(model, ids, attention, select, 1.0)
    torch.testing.assert_close(log_probs, expected, atol=1e-4, rtol=1e-4)


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200))
def test_every_row_is_in_one_micro_batch_within_the_budget(lengths, budget):
    batches = micro_batches(lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget


def partitions(items):
    """All ways to put the items into batches."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for i in range(len(rest)):
            yield [*rest[:i], [items[0], *rest[i]], *rest[i + 1 :]]


def test_no_other_grouping_needs_fewer_micro_batches():
    chance = random.Random(0)
    for _ in range(60):
        lengths = [chance.randint(1, 9) for _ in range(chance.randint(1, 7))]
        budget = chance.randint(3, 30)
        fits = [
            len(grouping)
            for grouping in partitions(list(range(len(lengths))))
            if all(len(b) == 1 or len(b) * max(lengths[row] for row in b) <= budget for b in grouping)
        ]
        assert len(micro_batches(lengths, budget)) == min(fits), (lengths, budget)


def test_micro_batches_depend_on_the_lengths_alone():
    assert micro_batches([3, 9, 3, 4], 8) == [[1], [3, 0], [2]]
