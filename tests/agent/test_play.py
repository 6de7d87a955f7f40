"""One episode: its tokens only grow, are trained as they were sampled, and its world is shown as it is."""

from itertools import pairwise

import pytest
from playing import TOLD, request, setting
from toy_worlds import Counter

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.agent.play import CUT_MARK
from openmanus_rl.agent.records import read_episodes, write_episodes
from openmanus_rl.agent.replay import replay_episode
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train, episodes_to_rows
from openmanus_rl.agent.templates import TEMPLATES
from openmanus_rl.agent.templates.react import React

FAR = {"goal": 100}


def between(episode: Episode, turn: int) -> list[int]:
    """The tokens that stand between a turn's sampled tokens and the next ones."""
    (segment,) = episode.segments
    turns = segment.turns
    following = turns[turn + 1].start if turn + 1 < len(turns) else len(segment.ids)
    return list(segment.ids[turns[turn].end : following])


def test_every_prompt_is_the_one_before_with_what_was_sampled_and_seen(models):
    with setting(models / "random", options=FAR, agent={"max_turns": 5}) as here:
        episodes = here.agent.play([request(seed=seed, temperature=1.0) for seed in range(4)])
        sessions = {session: [] for session, _, _ in here.engine.heard}
        for session, prompt, completion in here.engine.heard:
            sessions[session].append((prompt, completion.token_ids))
    assert len(sessions) == 4
    for asked in sessions.values():
        assert len(asked) == 5
        for (prompt, sampled), (later_prompt, _) in pairwise(asked):
            assert later_prompt[: len(prompt) + len(sampled)] == prompt + sampled
            assert len(later_prompt) > len(prompt) + len(sampled)
    whole = sorted(list(episode.segments[0].ids) for episode in episodes)
    last_prompts = sorted(asked[-1][0] + asked[-1][1] for asked in sessions.values())
    assert [ids[: len(prompt)] for ids, prompt in zip(whole, last_prompts, strict=True)] == last_prompts


def test_what_was_played_and_written_down_is_the_same_on_the_live_world(models, tmp_path):
    with setting(models / "random", options=FAR, agent={"max_turns": 3}) as here:
        write_episodes(tmp_path / "a.jsonl", here.agent.play([request(seed=3, temperature=1.0)]))
    (episode,) = read_episodes(tmp_path / "a.jsonl")
    assert episode.first_observation == "native: 0 of 100"
    assert replay_episode(episode, Counter(**FAR)) == []
    assert "what is seen before it" in replay_episode(episode, Counter(goal=99))[0]


def test_the_mask_covers_exactly_what_the_engine_sampled(models):
    with setting(models / "random", options=FAR, agent={"max_turns": 3}) as here:
        episodes = here.agent.play([request(seed=seed, temperature=1.0) for seed in range(3)])
        sampled = {}
        for session, _, completion in here.engine.heard:
            sampled.setdefault(session, []).extend(completion.token_ids)
    rows = episodes_to_rows(episodes, here.renderer.pad_token_id)
    width = rows.batch["response_mask"].shape[1]
    trained = [
        ids[-width:][mask].tolist()
        for ids, mask in zip(rows.batch["input_ids"], rows.batch["response_mask"], strict=True)
    ]
    assert sorted(trained) == sorted(sampled.values())
    assert_only_sampled_tokens_train(rows)


def test_sampled_tokens_stay_as_they_are_where_their_text_would_be_encoded_otherwise(models):
    with setting(models / "random", options=FAR) as here:
        (episode,) = here.agent.play([request(seed=3, temperature=1.0)])
        stop = here.renderer.stop_token_ids
        turns = [(turn.start, [t for t in turn.token_ids if t not in stop], turn.text) for turn in episode.turns]
        respelt = [(start, ids) for start, ids, text in turns if here.renderer.encode_content(text) != ids]
    assert respelt, "the test needs a turn whose text has another spelling"
    for start, ids in respelt:
        assert list(episode.segments[0].ids[start : start + len(ids)]) == ids


def test_a_turn_keeps_what_the_engine_said_and_what_the_world_made_of_it(models):
    with setting(models / "obedient") as here:
        here.agent.run(here.engine.update_weights(None, 7))
        (episode,) = here.agent.play([request("up", temperature=1.0, seed=5)])
        completions = [completion for _, _, completion in here.engine.heard]
    assert [list(turn.token_ids) for turn in episode.turns] == [completion.token_ids for completion in completions]
    assert [list(turn.log_probs) for turn in episode.turns] == [completion.log_probs for completion in completions]
    assert {version for turn in episode.turns for version in turn.versions} == {7}
    assert [turn.action for turn in episode.turns] == ["up", "up", "up"]
    assert [turn.reward for turn in episode.turns] == [1.0, 2.0, 3.0]
    assert [turn.state_key for turn in episode.turns] == ["at 0", "at 1", "at 2"]
    assert [turn.observation for turn in episode.turns] == [f"native: {count} of 3" for count in (1, 2, 3)]
    assert episode.episode_return == 6.0
    assert episode.success


def test_the_prompt_is_the_task_and_the_first_observation(models):
    with setting(models / "obedient") as here:
        (episode,) = here.agent.play([request("up", 1)])
        (own,) = here.agent.play([request("")])  # without a prompt, a task is introduced by its world
        prompt = here.renderer.prompt_ids(TEMPLATES["react"].opening("up", "native: 1 of 3"))
        own_prompt = here.renderer.prompt_ids(TEMPLATES["react"].opening("Count to 3. Actions: up.", "native: 0 of 3"))
    assert list(episode.segments[0].ids[: episode.segments[0].prompt_length]) == prompt
    assert list(own.segments[0].ids[: own.segments[0].prompt_length]) == own_prompt


def test_between_two_turns_stands_the_observation_and_the_end_of_turn_only_where_it_was_not_sampled(models):
    with setting(models / "obedient", options=FAR, agent={"max_turns": 2}) as here:
        (ended,) = here.agent.play([request("up")])
        assert between(ended, 0) == here.renderer.append_ids(True, "native: 1 of 100")
    with setting(models / "obedient", options=FAR, agent={"max_turns": 2, "max_tokens_per_turn": 2}) as here:
        (cut,) = here.agent.play([request("up")])
        assert here.renderer.end_of_turn_id not in cut.turns[0].token_ids
        assert between(cut, 0) == here.renderer.append_ids(False, TOLD)
        assert between(cut, 0)[0] == here.renderer.end_of_turn_id


def test_the_last_observation_of_a_cut_episode_is_there_for_the_critic(models):
    with setting(models / "obedient", options=FAR, agent={"max_turns": 2}) as here:
        (episode,) = here.agent.play([request("up")])
        assert between(episode, 1) == here.renderer.append_ids(True, "native: 2 of 100")


def test_an_answer_without_an_action_is_told_why_and_costs_the_penalty(models):
    with setting(models / "obedient", options=FAR, agent={"max_turns": 3, "invalid_penalty": 0.25}) as here:
        (episode,) = here.agent.play([request("babble")])
        told = between(episode, 0)
        assert told == here.renderer.append_ids(True, TOLD)
    assert [turn.reward for turn in episode.turns] == [-0.25] * 3
    assert [turn.action for turn in episode.turns] == [None] * 3
    assert all("no line that starts with Action:" in turn.invalid_reason for turn in episode.turns)
    assert [turn.state_key for turn in episode.turns] == ["at 0"] * 3, "the world was not touched"
    assert episode.stop_reason is StopReason.MAX_TURNS


def test_the_tokens_of_the_action_are_known_and_what_ended_the_turn(models):
    with setting(models / "obedient") as here:
        (episode,) = here.agent.play([request("up")])
        turn = episode.turns[0]
        assert here.renderer.decode(turn.token_ids[slice(*turn.action_span)]).strip() == "up"
        assert (turn.kind, turn.finish) == ("action", "stop")
    with setting(models / "obedient", options=FAR, agent={"max_turns": 1, "max_tokens_per_turn": 2}) as here:
        (cut,) = here.agent.play([request("up")])
    assert (cut.turns[0].kind, cut.turns[0].finish, cut.turns[0].action_span) == ("invalid", "length", None)


def test_what_is_sampled_after_the_end_of_an_answer_is_cut_off_and_not_trained(models):
    class Brief(React):
        stop = ("Action: up",)  # the obedient model goes on with its end of turn

    with setting(models / "obedient", options=FAR, agent={"max_turns": 2}, template=Brief()) as here:
        (episode,) = here.agent.play([request("up")])
        sampled = [completion.token_ids for _, _, completion in here.engine.heard]
    for turn, whole in zip(episode.turns, sampled, strict=True):
        assert list(turn.token_ids) == whole[:-1]
        assert whole[-1] == here.renderer.end_of_turn_id
        assert (turn.action, turn.finish) == ("up", "stop")
    assert between(episode, 0) == here.renderer.append_ids(False, "native: 1 of 100")
    assert_only_sampled_tokens_train(episodes_to_rows([episode], here.renderer.pad_token_id))


def test_an_action_that_the_world_finds_invalid_keeps_the_worlds_reason_and_reward(models):
    with setting(models / "obedient", options=FAR, agent={"max_turns": 1}) as here:
        (episode,) = here.agent.play([request("doze")])
    (turn,) = episode.turns
    assert (turn.action, turn.invalid_reason, turn.reward) == ("doze", "no time to sleep", 0.0)


@pytest.mark.parametrize(
    "chatter",
    [" blah" * 100, "x" + "é" * 60, "x" + "🎉" * 9 + "!"],
    ids=["words", "two bytes a character", "four bytes a character"],
)
def test_a_long_observation_loses_its_middle_and_keeps_within_the_limit(models, chatter):
    limits = {"max_turns": 1, "max_observation_tokens": 30}
    with setting(models / "obedient", options={**FAR, "chatter": chatter}, agent=limits) as here:
        (episode,) = here.agent.play([request("up")])
        around = here.renderer.append_ids(True, "")
        whole = here.renderer.append_ids(True, episode.turns[0].observation)
        shown = here.renderer.decode(between(episode, 0)[1:-2])
    assert len(whole) - len(around) > 30, "the test needs an observation over the limit"
    assert len(between(episode, 0)) - len(around) <= 30
    before, mark, after = shown.partition(CUT_MARK)
    observation = f"native: 1 of 100{chatter}"
    assert mark
    assert before
    assert observation.startswith(before)
    assert after
    assert observation.endswith(after)
    assert episode.turns[0].observation == observation, "the record keeps the whole"


def test_a_long_first_observation_is_shortened_too(models):
    with setting(models / "random", options={"greeting": " 5" * 500}, agent={"max_observation_tokens": 20}) as here:
        (episode,) = here.agent.play([request("up")])
        prompt = here.renderer.decode(episode.segments[0].ids[: episode.segments[0].prompt_length])
    assert prompt.count(" 5") < 20
    assert CUT_MARK in prompt


def test_an_observation_within_the_limit_is_shown_whole(models):
    limits = {"max_turns": 1, "max_observation_tokens": 40}
    with setting(models / "obedient", options={**FAR, "chatter": " 3" * 20}, agent=limits) as here:
        (episode,) = here.agent.play([request("up")])
        assert between(episode, 0) == here.renderer.append_ids(True, "native: 1 of 100" + " 3" * 20)


def test_a_segment_is_never_longer_than_the_context(models):
    options = {**FAR, "chatter": " 7" * 40}
    for context in (100, 117, 150):
        with setting(models / "obedient", options=options, max_context=context) as here:
            (episode,) = here.agent.play([request("up")])
        assert episode.turns
        assert len(episode.segments[0].ids) <= context
        assert episode.stop_reason is StopReason.CONTEXT_FULL


def test_two_episodes_at_once_do_not_mix(models):
    with setting(models / "obedient", Counter, options={"goal": 3}) as here:
        episodes = here.agent.play([request("up", number) for number in (0, 1, 2)])
    assert [len(episode.turns) for episode in episodes] == [3, 2, 1]
    assert [episode.episode_return for episode in episodes] == [6.0, 5.0, 3.0]
