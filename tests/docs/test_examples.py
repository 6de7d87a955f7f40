"""The examples that readers copy: what each one promises. That their commands run is in test_docs.py."""

import pytest
import torch
from doc_pages import ROOT

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.algorithms.credit import CreditBatch
from openmanus_rl.algorithms.losses import LossInputs
from openmanus_rl.algorithms.registry import estimator_options, find_estimator, find_loss, loss_options
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.distributed.processes import ThisProcess
from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.envs import Task
from openmanus_rl.envs.base import SPLITS, EpisodeOver
from openmanus_rl.envs.baselines import baseline_success
from openmanus_rl.envs.registry import environment_class
from openmanus_rl.errors import UserError
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model
from openmanus_rl.protocol import DataProto
from openmanus_rl.rewards import parse_reward, score_episode
from openmanus_rl.rewards.score import judge
from openmanus_rl.workers.registry import find_worker

CURIOUS = "examples/curiosity_worker.py:CuriousActor"
NOVELTY = "examples/novelty_worker.py:Novelty"
CORRIDOR = "examples/corridor_world.py:Corridor"
LEAVE_ONE_OUT = "examples/leave_one_out.py:leave_one_out"
SHORT_WAY = "examples/short_way_reward.py:compute_score"
NEW_PLACES = "examples/new_places_reward.py:new_places"
SOFT_CLIP = "examples/soft_clip_loss.py:soft_clip"


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_corridor_has_every_task_in_one_split_only():
    world = environment_class(CORRIDOR)
    by_split = [set(world.item_ids(split)) for split in SPLITS]
    assert all(by_split)
    assert sum(len(items) for items in by_split) == len(set.union(*by_split)) == 8 * 7


def test_the_corridors_expert_always_finds_the_lamp_and_chance_does_not():
    assert baseline_success(CORRIDOR, "expert", "train").rate == 1
    assert 0.2 < baseline_success(CORRIDOR, "random", "train").rate < 0.9


def test_the_corridor_plays_by_its_rules():
    corridor = environment_class(CORRIDOR)(length=4)
    assert corridor.reset(Task("corridor", "corridor_6")).text == "cell 1 lamp 2"
    refused = corridor.step("fly")
    assert refused.reward == -0.05
    assert refused.info["invalid"] == "not one of left, right"
    won = corridor.step("Right")
    assert (won.reward, won.terminated, won.success) == (1.0, True, True)
    with pytest.raises(EpisodeOver):
        corridor.step("left")


def test_the_corridor_is_cut_after_twice_its_length():
    corridor = environment_class(CORRIDOR)(length=4)
    corridor.reset(Task("corridor", "corridor_3"))
    results = [corridor.step("left") for _ in range(8)]
    assert [result.truncated for result in results] == [False] * 7 + [True]
    assert not results[-1].success


def test_the_corridor_refuses_what_is_no_task_of_its():
    corridor = environment_class(CORRIDOR)(length=4)
    for item_id in ("corridor_5", "corridor_16", "maze_1"):
        with pytest.raises(UserError):
            corridor.reset(Task("corridor", item_id))


@pytest.mark.parametrize(("success", "turns"), [(True, 1), (True, 5), (False, 1), (False, 5)])
def test_the_reward_pays_success_and_charges_for_turns(success, turns):
    played = [Turn(i, [7], [0.0], [0], "Action: up", "up", None, None) for i in range(turns)]
    segment = Segment([7] * turns, 0, played)
    episode = Episode(Task("maze", "maze_0"), 0, 0, 0, [segment], StopReason.DONE, success)
    assert score_episode(SHORT_WAY, episode) == (pytest.approx(success - 0.02 * turns), {"turns": turns})


def test_the_estimator_compares_each_episode_with_the_mean_of_the_others():
    returns = torch.tensor([1.0, 0.0, 0.5, 3.0, 1.0])
    groups = torch.tensor([0, 0, 0, 1, 1])
    mask = torch.tensor([[True, True, False]]).repeat(5, 1)
    rewards = torch.zeros(5, 3)
    rewards[:, 1] = returns
    batch = CreditBatch(
        token_level_rewards_RT=rewards,
        response_mask_RT=mask,
        turn_index_RT=torch.where(mask, 0, -1),
        group_index_R=groups,
        episode_index_R=torch.arange(5),
        segment_index_R=torch.zeros(5, dtype=torch.long),
        bootstrap_R=torch.zeros(5, dtype=torch.bool),
    )
    answer = find_estimator(LEAVE_ONE_OUT)(batch, estimator_options(LEAVE_ONE_OUT, {"scale": 2.0}))
    expected = 2 * torch.tensor([1 - 0.25, 0 - 0.75, 0.5 - 0.5, 3.0 - 1.0, 1.0 - 3.0])
    torch.testing.assert_close(answer.advantages_RT, expected[:, None] * mask)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny"
    build_tiny_model(directory, ["Thought: go Action: up"] * 3, TinyModelSpec(hidden_size=32, heads=2), seed=1)
    return directory


def answers(*tokens: int) -> DataProto:
    """An episode of two turns for each: first the token twice, then token 7; with an observation between."""
    responses = torch.tensor([[token, token, 1, 7] for token in tokens])
    mask = torch.tensor([[True, True, False, True]]).repeat(len(tokens), 1)
    prompts = torch.full((len(tokens), 2), 3)
    return DataProto.from_dict(
        {
            "prompts": prompts,
            "responses": responses,
            "input_ids": torch.cat([prompts, responses], dim=1),
            "attention_mask": torch.ones(len(tokens), 6, dtype=torch.long),
            "response_mask": mask,
            "turn_index": torch.tensor([[0, 0, -1, 1]]).repeat(len(tokens), 1),
            "episode_index": torch.arange(len(tokens)),
            "group_index": torch.zeros(len(tokens), dtype=torch.long),
            "rollout_log_probs": torch.full(mask.shape, -6.0) * mask,
            "old_log_probs": torch.full(mask.shape, -6.0) * mask,
            "advantages": torch.zeros(mask.shape),
        }
    )


def test_the_curious_actor_likes_rare_answers_and_remembers_them(model_dir, tmp_path):
    config = RunConfig(actor={"mini_batches": 1}, trainer={"workers": {"actor": CURIOUS}})
    actor = WorkerGroup(
        find_worker(config.trainer.workers["actor"]), ThisProcess(), "actor", model_dir=str(model_dir), config=config
    )
    data = answers(5, 5, 9)

    def curiosity(actor):
        return actor.update_actor(data, 0).meta_info["metrics"]["actor/curiosity"]

    # Tokens of the answers 5 5 (twice, two tokens each time), 9 9, and 7 (three times).
    first = 0.1 * (2 + 2 / 2**0.5 + 2 + 1 + 1 / 2**0.5 + 1 / 3**0.5) / 9
    assert curiosity(actor) == pytest.approx(first)
    assert not data.batch["advantages"].any(), "the batch is the caller's"
    actor.save(tmp_path)
    actor.saved()
    second = curiosity(actor)
    assert second < 0.7 * first
    resumed = WorkerGroup(find_worker(CURIOUS), ThisProcess(), "actor", model_dir=str(model_dir), config=config)
    resumed.load(tmp_path)
    assert curiosity(resumed) == second


def test_the_curious_actor_learns_from_its_curiosity_alone(model_dir):
    config = RunConfig(actor={"mini_batches": 1})
    plain, curious = (find_worker(name)(str(model_dir), config) for name in ("actor", CURIOUS))
    norms = [
        worker.update_actor(answers(5, 9), 0).meta_info["metrics"]["actor/grad_norm"] for worker in (plain, curious)
    ]
    assert norms[0] == 0
    assert norms[1] > 0


def test_rare_behaviour_is_paid_more_and_a_rows_other_tokens_keep_their_scores():
    data = answers(5, 5, 9)
    data.batch["token_level_scores"] = torch.zeros(data.batch["response_mask"].shape)
    before = data.batch["token_level_scores"].clone()
    paid = find_worker(NOVELTY)("", RunConfig()).enrich(data).batch["token_level_scores"]
    bonus = paid.sum(dim=1)
    assert bonus[0] == pytest.approx(0.05 / 2**0.5)
    assert bonus[1] == bonus[0] < bonus[2] == pytest.approx(0.05)
    assert (paid != 0).sum(dim=1).tolist() == [1, 1, 1]
    assert torch.equal(data.batch["token_level_scores"], before), "the batch is the caller's"


def test_the_process_reward_pays_for_the_first_time_in_a_state():
    turns = [Turn(i, [7], [0.0], [0], "Action: up", "up", None, state) for i, state in enumerate(["A", "B", "A", None])]
    episode = Episode(Task("maze", "maze_0"), 0, 0, 0, [Segment([7] * 4, 0, turns)], StopReason.DONE)
    assert judge(parse_reward(NEW_PLACES), episode).turns == [0.02, 0.02, 0.0, 0.0]


def test_the_loss_holds_the_policy_by_a_price():
    def one_token(log_ratio: float, price: float) -> float:
        log_prob, one = torch.tensor([[log_ratio]], requires_grad=True), torch.ones(1, 1)
        inputs = LossInputs(log_prob, 0 * one, one, one.bool())
        find_loss(SOFT_CLIP)(inputs, loss_options(SOFT_CLIP, {"price": price})).loss_RT.sum().backward()
        return log_prob.grad.item()

    assert one_token(0.0, price=0.5) == -1.0, "at the old policy it is the policy gradient"
    assert one_token(2.0, price=0.0) < 0 < one_token(2.0, price=5.0), "far away the price turns it back"
