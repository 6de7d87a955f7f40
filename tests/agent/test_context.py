"""Long episodes: what the model sees of them, and that every segment goes right through rows, credit and updates."""

from itertools import pairwise

import pytest
import torch
from playing import request, setting
from toy_worlds import Counter

from openmanus_rl.agent.context import SUMMARY_REQUEST, left_out, notes
from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.records import episode_from_dict, episode_to_dict
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train, episodes_to_rows
from openmanus_rl.agent.templates import TEMPLATES
from openmanus_rl.algorithms.core_algos import compute_advantage, credit_batch
from openmanus_rl.algorithms.registry import estimator_options

FAR = {"goal": 100}
WINDOW = {"kind": "window", "turns": 2}
SUMMARY = {"kind": "summary", "turns": 2, "max_summary_tokens": 6}


def play(models, agent, seeds=(1,), temperature=0.0, model="obedient", **more):
    with setting(models / model, options=FAR, agent=agent, **more) as here:
        episodes = here.agent.play([request("up", seed=seed, temperature=temperature) for seed in seeds])
        heard = list(here.engine.heard)
    return here, episodes, heard


def test_a_window_grows_to_twice_its_turns_and_starts_anew_with_half_of_them(models):
    here, (episode,), _ = play(models, {"max_turns": 9, "context": WINDOW})
    assert [len(segment.turns) for segment in episode.segments] == [4, 2, 2, 1]
    assert episode.stop_reason is StopReason.MAX_TURNS
    first, second, *_ = episode.segments
    opening = TEMPLATES["react"].opening("up", f"native: 0 of 100\n\n{left_out(2)}\n\nnative: 2 of 100")
    prompt = here.renderer.prompt_ids(opening)
    assert list(second.ids[: len(prompt)]) == prompt
    kept = list(first.ids[first.turns[2].start :]) + here.renderer.append_ids(True, "native: 4 of 100")
    assert list(second.ids[len(prompt) : second.prompt_length]) == kept, (
        "the turns are shown by the tokens they were sampled as"
    )


def test_a_window_that_is_full_before_its_time_is_cut_then(models):
    _, (whole,), _ = play(models, {"max_turns": 8, "context": {"kind": "full"}}, max_context=110)
    assert whole.stop_reason is StopReason.CONTEXT_FULL
    _, (episode,), _ = play(models, {"max_turns": 8, "context": {"kind": "window", "turns": 2}}, max_context=110)
    assert episode.stop_reason is StopReason.MAX_TURNS
    assert all(len(segment.ids) <= 110 for segment in episode.segments)
    assert len(episode.segments) > 2


def test_the_prompts_of_a_segment_only_grow(models):
    _, episodes, heard = play(
        models, {"max_turns": 9, "context": WINDOW}, seeds=range(3), temperature=1.0, model="random"
    )
    for session in {session for session, _, _ in heard}:
        prompts = [(prompt, sampled.token_ids) for name, prompt, sampled in heard if name == session]
        grown = [later[: len(one) + len(ids)] == one + ids for (one, ids), (later, _) in pairwise(prompts)]
        assert grown == [True] * 3 + [False, True] * 2 + [False], "a new start after 4, 6 and 8 turns"
    assert_only_sampled_tokens_train(episodes_to_rows(episodes, 0))


def test_with_full_context_an_episode_is_one_segment(models):
    _, (episode,), _ = play(models, {"max_turns": 9})
    assert len(episode.segments) == 1


@pytest.mark.parametrize("trains", [False, True])
def test_a_summary_is_asked_for_in_the_old_segment_and_begins_the_new_one(models, trains):
    agent = {"max_turns": 5, "context": {**SUMMARY, "train_summaries": trains}}
    here, (episode,), heard = play(models, agent)
    assert [len(segment.turns) for segment in episode.segments] == [2, 2, 1]
    first, second, last = episode.segments
    summary = first.summary
    assert last.summary is None
    assert (summary.kind, summary.action, len(summary.token_ids) <= 6) == ("summary", None, True)
    asked = here.renderer.append_ids(True, SUMMARY_REQUEST)
    assert list(first.ids[first.turns[1].end :]) == [*asked, *summary.token_ids]
    opening = f"native: 0 of 100\n\n{notes(2, summary.text)}\n\nnative: 2 of 100"
    prompt = here.renderer.prompt_ids(TEMPLATES["react"].opening("up", opening))
    assert list(second.ids[: second.prompt_length]) == prompt
    rows = episodes_to_rows([episode], 0)
    assert_only_sampled_tokens_train(rows)
    acted = [sum(len(turn.token_ids) for turn in segment.turns) for segment in episode.segments]
    noted = [len(segment.summary.token_ids) if segment.summary else 0 for segment in episode.segments]
    trained = rows.batch["response_mask"].sum(-1).tolist()
    assert trained == [a + trains * n for a, n in zip(acted, noted, strict=True)]
    assert episode.sampled_tokens == sum(acted) + sum(noted) == sum(len(c.token_ids) for _, _, c in heard)
    if trains:
        turns = rows.batch["turn_index"][0][rows.batch["response_mask"][0]].tolist()
        assert turns[-len(summary.token_ids) :] == [1] * len(summary.token_ids), "part of the turn before it"
    assert episode_from_dict(episode_to_dict(episode)) == episode


def test_a_summary_is_written_before_the_context_is_too_full_for_it(models):
    agent = {"max_turns": 6, "context": {**SUMMARY, "turns": 50}}
    _, (episode,), _ = play(models, agent, max_context=190)
    assert episode.stop_reason is StopReason.MAX_TURNS
    assert len(episode.segments) > 1
    assert all(len(segment.ids) <= 190 for segment in episode.segments)


def test_a_summary_counts_against_the_episodes_tokens(models):
    _, (episode,), _ = play(models, {"max_turns": 50, "max_episode_tokens": 40, "context": SUMMARY})
    assert episode.stop_reason is StopReason.TOKEN_BUDGET
    assert episode.sampled_tokens == 40


def many_segments(models, context):
    """Rows of two groups of episodes, most of several segments."""
    agent = {"max_turns": 7, "context": context}
    _, episodes, _ = play(models, agent, seeds=range(6), temperature=1.3, world=Counter)
    for number, episode in enumerate(episodes):
        episode.group = number // 3
    return episodes, episodes_to_rows(episodes, 0)


@pytest.mark.parametrize("context", [WINDOW, {**SUMMARY, "train_summaries": True}], ids=["window", "summary"])
def test_group_statistics_count_an_episode_once_however_many_segments_it_has(models, context):
    episodes, rows = many_segments(models, context)
    assert len(rows) > 2 * len(episodes)
    rows.batch["token_level_rewards"] = rows.batch["token_level_scores"].clone()
    done = compute_advantage(rows, "grpo", estimator_options("grpo", {}))
    returns = torch.tensor([episode.episode_return for episode in episodes], dtype=torch.float64).view(2, 3)
    spread = returns.std(dim=1, keepdim=True)
    expected = ((returns - returns.mean(dim=1, keepdim=True)) / (spread + 1e-6)).flatten()
    for row, episode in enumerate(rows.batch["episode_index"].tolist()):
        found = done.batch["advantages"][row][rows.batch["response_mask"][row]]
        assert torch.allclose(found.double(), expected[episode].expand(len(found)), atol=1e-3)


def test_gae_crosses_from_one_segment_to_the_next(models):
    episodes, rows = many_segments(models, WINDOW)
    columns, mask = rows.batch, rows.batch["response_mask"]
    columns["token_level_rewards"] = columns["token_level_scores"].clone()
    generator = torch.Generator().manual_seed(0)
    columns["values"] = torch.randn(mask.shape, generator=generator) * mask
    columns["final_values"] = torch.randn(len(rows), generator=generator)
    options = estimator_options("gae", {"gamma": 0.9, "lam": 0.8, "whiten": False})
    done = compute_advantage(rows, "gae", options).batch["advantages"]
    for index in range(len(episodes)):
        own = [row for row, episode in enumerate(columns["episode_index"].tolist()) if episode == index]
        rewards, values, found = (
            torch.cat([column[row][mask[row]] for row in own]).tolist()
            for column in (columns["token_level_rewards"], columns["values"], done)
        )
        after = columns["final_values"][own[-1]].item() if columns["bootstrap"][own[-1]] else 0.0
        advantage, expected = 0.0, []
        for reward, value in zip(reversed(rewards), reversed(values), strict=True):
            advantage = reward + 0.9 * after - value + 0.9 * 0.8 * advantage
            after = value
            expected.append(advantage)
        assert found == pytest.approx(expected[::-1], abs=1e-4)
    assert credit_batch(rows).num_episodes == len(episodes)
