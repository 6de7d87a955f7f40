"""Rows in mini- and micro-batches: each once, whole episodes together, padding kept small."""

from itertools import chain

import pytest
import torch
from training_cases import tokens_of

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.batching import iterate_micro_batches, to_responses
from openmanus_rl.workers.updates import MetricSums, mini_batches


def episodes(*segments):
    """Rows with a number each; episode i has `segments[i]` of them."""
    index = [episode for episode, count in enumerate(segments) for _ in range(count)]
    return DataProto.from_dict({"episode_index": torch.tensor(index), "row": torch.arange(len(index))})


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


@pytest.mark.parametrize("budget", [1, 130, 250, 8192])
def test_micro_batches_hold_each_row_once_without_its_outer_padding(batch, budget):
    seen = []
    for micro in iterate_micro_batches(batch, budget):
        assert micro.input_ids.numel() <= budget or len(micro.rows) == 1
        for place, row in enumerate(micro.rows.tolist()):
            ids, sampled = tokens_of(batch, row)
            assert micro.input_ids[place, : len(ids)].tolist() == ids.tolist()
            assert micro.sampled[place].tolist() == sampled.tolist() + [False] * (micro.sampled.shape[1] - len(ids))
            assert micro.position_ids[place, : len(ids)].tolist() == list(range(len(ids)))
            assert int(micro.last[place]) == len(ids) - 1
            seen.append(row)
        assert micro.input_ids.shape[1] == max(len(tokens_of(batch, row)[0]) for row in micro.rows.tolist())
    assert sorted(seen) == list(range(len(batch)))


def test_values_at_sampled_tokens_return_to_their_places_in_the_responses(batch):
    for micro in iterate_micro_batches(batch, 250):
        mask = batch.batch["response_mask"][micro.rows]
        back = to_responses(micro.input_ids.float(), micro, mask)
        assert torch.equal(back, torch.where(mask, batch.batch["responses"][micro.rows], 0).float())


def test_metric_sums_become_means_over_everything_counted():
    sums = MetricSums()
    sums.add("loss", torch.tensor(6.0), 2)
    sums.add("loss", 3.0, 1)
    sums.add("norm", 5.0, 1)
    assert sums.means() == {"loss": 3.0, "norm": 5.0}
