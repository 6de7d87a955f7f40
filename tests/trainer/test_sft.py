"""Supervised fine-tuning: what is learnt, how it is laid out, when it stops, and that a stopped run goes on."""

import json
import math

import pytest
import torch
from tiny_runs import json_lines, undescribed
from transformers import LlamaConfig, LlamaForCausalLM

from openmanus_rl.agent.episode import Episode, Segment, Turn
from openmanus_rl.config.schema import WarmStartConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.models.load import has_adapters, load_causal_lm, load_whole_model
from openmanus_rl.trainer.examples import Example, episode_examples, layouts, log_prob_sums
from openmanus_rl.trainer.sft import FineTuning, fitting, split
from openmanus_rl.trainer.sft_run import BASE, STATE, run_sft


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def examples(count, seed=0):
    """Examples of 3 to 20 tokens, of which about half are learnt, and the second always."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for length in torch.randint(3, 21, (count,), generator=generator).tolist():
        ids = torch.randint(40, (length,), generator=generator).tolist()
        mask = [0, 1, *torch.randint(2, (length - 2,), generator=generator).tolist()]
        made.append(Example(ids, mask))
    return made


@torch.no_grad()
def log_prob_alone(model, example):
    """From the whole model's logits, for one example by itself."""
    log_probs = model(torch.tensor([example.ids])).logits.log_softmax(-1)[0]
    return sum(
        float(log_probs[place - 1, token])
        for place, (token, learnt) in enumerate(zip(example.ids, example.mask, strict=True))
        if learnt
    )


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("budget", [1, 45, 1000])
def test_an_example_has_the_log_prob_that_it_has_alone_whatever_lies_beside_it(model, packed, budget):
    given = examples(13)
    sums = sum(log_prob_sums(model, layout, len(given)) for layout in layouts(given, budget, packed))
    assert sums.tolist() == pytest.approx([log_prob_alone(model, example) for example in given], abs=1e-4)


@pytest.mark.parametrize("packed", [True, False])
def test_every_example_is_laid_out_once_and_within_the_budget(packed):
    given = examples(30)
    passes = list(layouts(given, 45, packed))
    assert all(layout.input_ids_RT.numel() <= 45 for layout in passes)
    assert sum(int(layout.learnt_RT.sum()) for layout in passes) == sum(example.learnt for example in given)
    if packed:
        tokens = sum(len(example.ids) for example in given)
        assert sum(layout.input_ids_RT.numel() for layout in passes) == tokens, "packing needs no padding"


def tuning_of(model, train, held_out=(), **config):
    settings = WarmStartConfig(**{"epochs": 1, "lr": 1e-2, "batch_tokens": 200, **config})
    return FineTuning(model, train, held_out, settings, micro_batch_tokens=60, seed=0)


def test_the_loss_is_the_mean_over_learnt_tokens_whatever_passes_it_takes(model):
    given = examples(6)
    expected = -sum(log_prob_alone(model, example) for example in given) / sum(example.learnt for example in given)
    seen = []
    tuning_of(model, given).run_epoch(lambda step, steps, metrics: seen.append(metrics["train/loss"]))
    assert seen == [pytest.approx(expected, abs=1e-5)]


def test_tokens_that_are_not_learnt_have_no_gradient_of_their_own(model):
    given = [Example([1, 2, 3, 4], [0, 0, 1, 0])]
    list(layouts(given, 100, True))
    tuning = tuning_of(model, given)
    tuning._accumulate_gradient(given)
    rows = model.lm_head.weight.grad.norm(dim=1)
    after_2 = model(torch.tensor([[1, 2]])).logits[0, -1].softmax(-1)
    hidden = model.model(torch.tensor([[1, 2]])).last_hidden_state[0, -1].norm()
    target = torch.zeros(40)
    target[3] = 1
    assert torch.allclose(rows, (after_2 - target).abs() * hidden, atol=1e-5), (
        "only the prediction of 3 after 1 2 counts"
    )


def test_it_stops_when_the_held_out_loss_rises_and_keeps_the_best_weights(model):
    train, held_out = examples(4), examples(4, seed=1)  # random tokens: nothing of them carries over
    tuning = tuning_of(model, train, held_out, epochs=40, lr=2e-2, patience=2)
    losses = []
    while tuning.is_due:
        losses.append(tuning.run_epoch(lambda *_: None))
    assert len(losses) < 40
    assert losses.index(min(losses)) == len(losses) - 3
    assert tuning.validation_loss() == pytest.approx(losses[-1])
    tuning.take_best()
    assert tuning.validation_loss() == pytest.approx(min(losses)) == tuning.best_loss


def test_without_held_out_examples_every_epoch_is_run(model):
    tuning = tuning_of(model, examples(4), epochs=5, patience=1)
    while tuning.is_due:
        assert tuning.run_epoch(lambda *_: None) is None
    assert tuning.epoch == 5


def test_a_share_is_held_out_and_nothing_is_in_both_parts():
    given = examples(20)
    train, held_out = split(given, 0.25, seed=3)
    assert (len(train), len(held_out)) == (15, 5)
    assert sorted(map(id, [*train, *held_out])) == sorted(map(id, given))
    assert split(given, 0.25, seed=3) == (train, held_out)
    assert split(given, 0.25, seed=4) != (train, held_out)


def test_a_share_that_holds_nothing_out_is_an_error():
    with pytest.raises(UserError, match="is not one to hold out"):
        split([Example([1, 2], [False, True])] * 4, 0.1, 0)


def test_what_does_not_fit_or_teaches_nothing_is_left_out():
    short, long, mute = Example([1, 2], [0, 1]), Example([1] * 9, [0] + [1] * 8), Example([1, 2], [0, 0])
    said = []
    assert fitting([short, long, mute], 8, said.append) == [short]
    assert fitting([short], 8, said.append) == [short]
    assert said == ["2 of 3 conversations do not fit model.max_context=8 or teach nothing"]
    with pytest.raises(UserError, match="no example fits"):
        fitting([long, mute], 8, said.append)


def test_a_played_episode_is_learnt_token_for_token_but_for_invalid_answers():
    def turn(start, ids, invalid=None):
        return Turn(start, ids, [0.0] * len(ids), [0] * len(ids), "", None, invalid, None)

    segment = Segment([1, 2, 3, 4, 5, 6, 7, 8, 9], 2, [turn(2, [3, 4]), turn(5, [6], "no action"), turn(7, [8])])
    (example,) = episode_examples(Episode(Task("maze", "maze_1"), 0, 0, 0, [segment]))
    assert example.ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert example.mask == [0, 0, 1, 1, 0, 0, 0, 1]


SFT = ["warm_start.enabled=true", "warm_start.validation_share=0.2", "warm_start.epochs=3"]


def test_a_stopped_run_goes_on_and_ends_with_the_same_weights(place, tmp_path, monkeypatch):
    config = place.config(*SFT)
    whole = run_sft(config, tmp_path / "whole")
    steps = {"count": 0}
    run_epoch = FineTuning.run_epoch

    def interrupted(self, on_step):
        steps["count"] += 1
        if steps["count"] == 3:
            raise KeyboardInterrupt
        return run_epoch(self, on_step)

    with monkeypatch.context() as patch:
        patch.setattr(FineTuning, "run_epoch", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_sft(config, tmp_path / "stopped")
    assert (tmp_path / "stopped" / STATE).exists()
    assert not (tmp_path / "stopped/model").exists()
    resumed = run_sft(config, tmp_path / "stopped")
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert not (tmp_path / "stopped" / STATE).exists()
    lines = [json_lines(tmp_path / name / "metrics.jsonl") for name in ("whole", "stopped")]
    assert [line["step"] for line in lines[0]] == [line["step"] for line in lines[1]]
    assert sum("val/loss" in line for line in lines[0]) == 3
    assert not undescribed(lines[0][-1])
    summary = json.loads((tmp_path / "whole/summary.json").read_text())
    assert math.isclose(summary["validation_loss"], min(line.get("val/loss", 99) for line in lines[0]))
    with pytest.raises(UserError, match="is there already and finished"):
        run_sft(config, tmp_path / "whole")
    with pytest.raises(UserError, match="is there already"):
        run_sft(place.config(*SFT, "warm_start.lr=0.5"), tmp_path / "stopped")


def test_what_fails_before_it_began_leaves_its_name_free(place, tmp_path):
    missing = place.config(*SFT, f"warm_start.data={tmp_path / 'missing.jsonl'}")
    with pytest.raises(UserError, match=r"missing\.jsonl"):
        run_sft(missing, tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists()


def test_adapters_alone_are_trained_and_saved(place, tmp_path):
    tuned = run_sft(place.config(*SFT, "model.lora.rank=2", "warm_start.epochs=1"), tmp_path / "lora")
    assert has_adapters(tuned)
    base, merged = load_causal_lm(tmp_path / "lora" / BASE).state_dict(), load_whole_model(tuned).state_dict()
    changed = {name for name in base if not torch.equal(base[name], merged[name])}
    assert changed
    assert all("proj" in name for name in changed), "embeddings and norms are frozen"
