"""Rows in mini- and micro-batches: each once, whole episodes together, padding kept small."""

from itertools import chain

import pytest
import torch
from training_cases import tokens_of

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.models.planner import Planner
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.batching import iterate_micro_batches, to_responses
from openmanus_rl.workers.updates import MetricSums, mini_batches


def episodes(*segments):
    """Rows with a number each; episode i has `segments[i]` of them."""
    index = [episode for episode, count in enumerate(segments) for _ in range(count)]
    return DataProto.from_dict(
        {
            "episode_index": torch.tensor(index),
            "group_index": torch.tensor(index) // 4,
            "row": torch.arange(len(index)),
        }
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_an_epoch_has_every_row_once_in_parts_of_like_size_with_whole_episodes(count):
    data = episodes(2, 1, 3, 1, 1)
    parts = list(mini_batches(data, OptimConfig(mini_batches=count), seed=3))
    assert len(parts) == count
    assert sorted(row for part in parts for row in part.batch["row"].tolist()) == list(range(8))
    played = [set(part.batch["episode_index"].tolist()) for part in parts]
    assert sum(len(part) for part in played) == 5, "no episode is in two parts"
    assert max(map(len, played)) - min(map(len, played)) <= 1


def test_fewer_episodes_than_mini_batches_are_one_each():
    parts = list(mini_batches(episodes(2, 1), OptimConfig(mini_batches=8), seed=0))
    assert sorted(len(part) for part in parts) == [1, 2]


def test_every_epoch_has_another_order_that_the_seed_decides():
    data = episodes(*[1] * 16)
    config = OptimConfig(mini_batches=4, epochs=3)

    def order(seed):
        return [part.batch["row"].tolist() for part in mini_batches(data, config, seed)]

    first = order(1)
    assert len(first) == 12
    for epoch in range(3):
        assert sorted(chain(*first[4 * epoch : 4 * epoch + 4])) == list(range(16))
    assert first[:4] != first[4:8] != first[8:]
    assert order(1) == first
    assert order(2) != first


def test_the_random_state_of_torch_is_left_alone():
    state = torch.get_rng_state()
    list(mini_batches(episodes(1, 1, 1), OptimConfig(mini_batches=2), seed=0))
    assert torch.equal(torch.get_rng_state(), state)


def test_groups_stay_whole_but_for_one_at_each_cut():
    data = episodes(*[1] * 22)
    for seed in range(20):
        parts = list(mini_batches(data, OptimConfig(mini_batches=3), seed))
        groups = [set(part.batch["group_index"].tolist()) for part in parts]
        assert sum(map(len, groups)) <= 6 + 2
    orders = {
        tuple(part.batch["row"].tolist()) for seed in range(20) for part in mini_batches(data, OptimConfig(), seed)
    }
    assert len(orders) > 10, "which groups come together is left to chance"


def planner(model_dir, layout, budget):
    return Planner(load_causal_lm(model_dir).get_decoder(), layout, budget, torch.device("cpu"))


@pytest.mark.parametrize("layout", ["tree", "packed", "sorted"])
@pytest.mark.parametrize("budget", [1, 130, 250, 8192])
def test_micro_batches_hold_each_row_once_and_predict_each_sampled_token_from_what_stands_before(
    model_dir, batch, budget, layout
):
    seen, computed = [], 0
    for micro in iterate_micro_batches(batch, planner(model_dir, layout, budget)):
        assert micro.computed <= budget or len(micro.rows) == 1
        ids = micro.tokens.input_ids.flatten()
        mask = batch.batch["response_mask"][micro.rows]
        assert torch.equal(
            to_responses(micro.labels.float(), micro, mask),
            torch.where(mask, batch.batch["responses"][micro.rows], 0).float(),
        )
        before = batch.batch["input_ids"].roll(1, dims=1)[:, -mask.shape[1] :][micro.rows]
        assert torch.equal(to_responses(ids[micro.before].float(), micro, mask), torch.where(mask, before, 0).float())
        for place, row in zip(micro.last.tolist(), micro.rows.tolist(), strict=True):
            tokens, _ = tokens_of(batch, row)
            assert int(ids[place]) == int(tokens[-1])
            assert int(micro.tokens.position_ids.flatten()[place]) == len(tokens) - 1
            seen.append(row)
        computed += micro.computed
    assert sorted(seen) == list(range(len(batch)))
    lengths = [len(tokens_of(batch, row)[0]) for row in range(len(batch))]
    if layout == "packed" or budget == 1:
        assert computed == sum(lengths), "nothing is padded"
    elif layout == "tree" and budget == 8192:
        assert computed < sum(lengths), "what rows share is there once"


def test_a_sampled_first_token_is_refused(model_dir, batch):
    batch.batch["attention_mask"][0, : batch.batch["prompts"].shape[1]] = 0
    batch.batch["response_mask"][0, 0] = True
    with pytest.raises(ValueError, match="first token"):
        list(iterate_micro_batches(batch, planner(model_dir, "sorted", 100)))


def test_metric_sums_become_means_over_everything_counted():
    sums = MetricSums()
    sums.add("loss", torch.tensor(6.0), 2)
    sums.add("loss", 3.0, 1)
    sums.add("norm", 5.0, 1)
    assert sums.means() == {"loss": 3.0, "norm": 5.0}
