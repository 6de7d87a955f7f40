"""AgentEvol and DPO: what is kept and paired, that gradients are right, and small runs that go on when stopped."""

import json
from types import SimpleNamespace

import pytest
import torch
from tiny_runs import json_lines, undescribed
from transformers import LlamaConfig, LlamaForCausalLM

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.records import read_episodes
from openmanus_rl.algorithms.dpo import dpo_loss
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.trainer import evolve
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.dpo import Pair, Preferences, pair_up, run_dpo
from openmanus_rl.trainer.evolve import keep_best, run_evolve
from openmanus_rl.trainer.examples import episode_examples, layouts, log_prob_sums
from openmanus_rl.trainer.self_play import explore, explored_tasks


def played(item: int, *texts: str, success: bool = True, score: float = 1.0) -> Episode:
    """An episode whose tokens are the letters of its texts, with one token seen between two of them."""
    segment = Segment([1, 2, item], prompt_length=3)
    for text in texts:
        ids = [ord(letter) % 40 for letter in text]
        segment.turns.append(Turn(len(segment.ids), ids, [0.0] * len(ids), [0] * len(ids), text, text, None, None))
        segment.ids.extend([*ids, 7])
    task = Task("maze", f"maze_{item}")
    return Episode(task, item, 0, 0, [segment], StopReason.DONE, success, scores={"score": score})


def test_of_each_task_the_best_success_is_kept_once():
    long, short, again = played(1, "up", "up", "left"), played(1, "up", "left"), played(1, "up", "left")
    better = played(1, "a", "b", "c", "d", score=1.5)
    failed, other = played(2, "down", success=False, score=9.0), played(3, "down")
    episodes = [long, short, again, failed, other]
    assert keep_best(episodes, 1) == [short, other]
    assert keep_best(episodes, 2) == [short, long, other], "what was said twice is kept once"
    assert keep_best([*episodes, better], 1) == [better, other], "the score comes before the length"


def test_rounds_go_through_the_tasks_one_after_another():
    tasks = [Task("maze", f"maze_{number}") for number in range(10)]
    rounds = [explored_tasks(tasks, 0, 4, number) for number in (1, 2, 3)]
    drawn = [task.item_id for each in rounds for task in each]
    assert len(set(drawn[:10])) == 10, "no task comes twice before all came once"
    assert explored_tasks(tasks, 0, 4, 2) == rounds[1]


def test_a_task_that_comes_twice_in_a_round_is_not_played_twice_in_the_same_way():
    requests = []
    agent = SimpleNamespace(play=lambda asked: requests.extend(asked) or [])
    tasks = [Task("maze", "maze_1"), Task("maze", "maze_2"), Task("maze", "maze_1")]
    explore(agent, tasks, RunConfig(rollout={"group_size": 2}), number=1)
    assert [request.task.item_id for request in requests] == [task.item_id for task in tasks for _ in range(2)]
    assert len({request.seed for request in requests}) == 6


def test_a_success_is_paired_with_a_failure_of_its_own_task_only():
    a, b, c = played(1, "a"), played(1, "b", success=False), played(1, "c", success=False)
    elsewhere = [played(2, "d"), played(3, "e", success=False)]
    assert pair_up([a, b, c, *elsewhere], 5) == [Pair(a, b), Pair(a, c)]
    assert pair_up([a, b, c, *elsewhere], 1) == [Pair(a, b)]
    with pytest.raises(UserError, match="no task has both a success and a failure"):
        pair_up(elsewhere, 1)


def test_pairs_take_every_success_and_every_failure_before_one_again():
    won, lost = ([played(1, text, success=won) for text in "abc"] for won in (True, False))
    assert pair_up([*won, *lost], 3) == [Pair(one, other) for one, other in zip(won, lost, strict=True)]
    assert len({(id(pair.chosen), id(pair.rejected)) for pair in pair_up([*won, *lost], 99)}) == 9
    assert len(pair_up([*won[:1], *lost], 99)) == len(pair_up([*won, *lost[:1]], 99)) == 3


@pytest.mark.parametrize(("budget", "chosen_weight"), [(1, 0.0), (10_000, 0.0), (1, 0.7)])
def test_dpos_gradient_pass_by_pass_is_that_of_the_whole_loss(budget, chosen_weight):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, max_position_embeddings=64, **sizes))
    pairs = [
        Pair(played(1, "up", "left"), played(1, "down", "down", "up", success=False)),
        Pair(played(2, "right"), played(2, "up", success=False)),
    ]
    config = RunConfig.model_validate(
        {"actor": {"micro_batch_tokens": budget}, "dpo": {"beta": 0.5, "chosen_weight": chosen_weight}}
    )
    learner = Preferences(model, pairs, config)
    with torch.no_grad():
        for weight in model.parameters():  # away from the reference, where the loss is that of a coin
            weight += 0.02 * torch.randn_like(weight)
    metrics = learner.accumulate_gradient([0, 1])
    gradient = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    model.zero_grad()
    episodes = [episode for pair in pairs for episode in (pair.chosen, pair.rejected)]
    examples = [example for episode in episodes for example in episode_examples(episode, learn_invalid=True)]
    log_probs = sum(log_prob_sums(model, layout, 4) for layout in layouts(examples, 10_000, packed=True)).view(2, 2)
    reference = learner.reference_P2
    loss = dpo_loss(log_probs[:, 0], log_probs[:, 1], reference[:, 0], reference[:, 1], 0.5).loss_P.mean()
    of_chosen = -(log_probs[:, 0] / torch.tensor([len("upleft"), len("right")])).mean()
    (loss + chosen_weight * of_chosen).backward()
    expected = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    assert metrics["train/loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert torch.allclose(gradient, expected, atol=1e-5)


def test_a_stopped_evolution_goes_on_with_the_round_it_stood_in(place, tmp_path, monkeypatch):
    config = place.config("evolve.rounds=2", "evolve.tasks=8", "warm_start.validation_share=0.1")
    explored = []
    explore = evolve.explore

    def stop_in_round_2(agent, tasks, config, number):
        explored.append(number)
        if explored == [1, 2]:
            raise KeyboardInterrupt
        return explore(agent, tasks, config, number)

    monkeypatch.setattr(evolve, "explore", stop_in_round_2)
    with pytest.raises(KeyboardInterrupt):
        run_evolve(config, tmp_path / "run")
    assert {path.name for path in (tmp_path / "run/rounds").iterdir()} == {"0", "1"}
    model = run_evolve(config, tmp_path / "run")
    assert explored == [1, 2, 2], "round 1 was not played again"
    lines = json_lines(tmp_path / "run/metrics.jsonl")
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert sorted(line["time"] for line in lines) == [line["time"] for line in lines]
    assert json_lines(tmp_path / "run/events.jsonl")[0]["algorithm"] == "evolve"
    assert not [name for line in lines for name in undescribed(line)]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert [entry["n"] for entry in summary["success"]] == [12, 12, 12]
    kept = read_episodes(tmp_path / "run/rounds/2/kept.jsonl")
    assert len(kept) == summary["kept"][2] >= summary["kept"][1] > 0
    assert all(episode.success for episode in kept)
    last = tmp_path / "run/rounds/2/model/model.safetensors"
    assert (model / "model.safetensors").read_bytes() == last.read_bytes()


def test_dpo_makes_a_model_that_prefers_what_succeeded(place, tmp_path):
    model = run_dpo(place.config("dpo.tasks=32", "dpo.epochs=8", "dpo.lr=0.003"), tmp_path / "run")
    assert (model / "model.safetensors").exists()
    lines = json_lines(tmp_path / "run/metrics.jsonl")
    assert not [name for line in lines for name in undescribed(line)]
    assert lines[-1]["dpo/margin"] > lines[1]["dpo/margin"] == 0
    assert lines[-1]["train/loss"] < lines[1]["train/loss"]
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["success_after"]["n"] == 12


def test_dpo_of_single_episodes_is_refused_before_anything_is_played(place, tmp_path):
    config = load_checked_config(place.grpo, place.words("rollout.group_size=1"), gives_credit=False)
    with pytest.raises(UserError, match=r"rollout\.group_size=1: dpo compares"):
        run_dpo(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
