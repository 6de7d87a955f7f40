"""Episodes as rows of tensors: every token in its place, and only sampled ones under the mask."""

import pytest
import torch
from handmade import one_segment_episode, turn, two_segment_episode

from openmanus_rl.agent.episode import Episode, Segment, StopReason
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train, episodes_to_rows
from openmanus_rl.envs.base import Task

PAD = 99


def rows():
    return episodes_to_rows([two_segment_episode(), one_segment_episode()], PAD)


def column(name):
    return rows().batch[name].tolist()


def test_prompts_are_padded_on_the_left_and_responses_on_the_right():
    assert column("prompts") == [[PAD, 1, 2], [PAD, 1, 9], [1, 2, 3]]
    assert column("responses") == [[3, 4, 5, 6, 7], [8, PAD, PAD, PAD, PAD], [4, 5, 6, PAD, PAD]]
    assert column("input_ids") == [p + r for p, r in zip(column("prompts"), column("responses"), strict=True)]


def test_attention_covers_the_tokens_and_positions_count_from_the_first():
    assert column("attention_mask") == [
        [0, 1, 1, 1, 1, 1, 1, 1],
        [0, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 0, 0],
    ]
    assert column("position_ids")[0] == [0, 0, 1, 2, 3, 4, 5, 6]
    assert column("position_ids")[1][1:4] == [0, 1, 2]
    assert column("position_ids")[2][:6] == [0, 1, 2, 3, 4, 5]


def test_the_mask_is_bool_and_true_on_sampled_tokens_only():
    assert rows().batch["response_mask"].dtype == torch.bool
    assert column("response_mask") == [
        [True, True, False, True, True],
        [True, False, False, False, False],
        [True, False, False, False, False],
    ]


def test_turns_are_counted_through_all_segments_of_an_episode():
    assert column("turn_index") == [[0, 0, -1, 1, 1], [2, -1, -1, -1, -1], [0, -1, -1, -1, -1]]


def test_turns_from_the_same_state_have_the_same_number_and_unknown_states_none():
    assert column("state_index") == [[0, 0, -1, 0, 0], [-1, -1, -1, -1, -1], [0, -1, -1, -1, -1]]


def test_log_probs_stand_on_their_tokens():
    assert column("rollout_log_probs")[0] == [-0.375, -0.5, 0.0, -0.75, -0.875]
    assert column("rollout_log_probs")[1] == [-1.0, 0.0, 0.0, 0.0, 0.0]


def test_rewards_stand_on_their_turns_last_sampled_token():
    expected = torch.tensor([[0, -0.1, 0, 0, -0.05], [1, 0, 0, 0, 0], [0.5, 0, 0, 0, 0]])
    assert torch.equal(rows().batch["token_level_scores"], expected)


def test_rows_know_their_group_episode_and_segment():
    assert column("group_index") == [2, 2, 5]
    assert column("episode_index") == [0, 0, 1]
    assert column("segment_index") == [0, 1, 0]
    assert rows().non_tensor_batch["item_id"].tolist() == ["maze-4-17", "maze-4-17", "maze_7"]
    assert list(rows().non_tensor_batch["sampled_ids"]) == [[3, 4, 6, 7], [8], [4]]


@pytest.mark.parametrize("reason", [reason for reason in StopReason if reason.is_sample])
def test_an_episode_cut_short_bootstraps_in_all_its_rows(reason):
    episode = two_segment_episode()
    episode.stop_reason = reason
    flags = episodes_to_rows([episode], PAD).batch["bootstrap"].tolist()
    assert flags == [reason in ("truncated", "max_turns", "token_budget", "context_full")] * 2


def test_a_failed_episode_is_refused():
    with pytest.raises(ValueError, match="maze_7 ended by env_timeout"):
        episodes_to_rows([one_segment_episode(StopReason.ENV_TIMEOUT)], PAD)


@pytest.mark.parametrize("position", [1, 4, 6, 40])
def test_a_reward_on_a_token_that_was_not_sampled_is_refused(position):
    with pytest.raises(ValueError, match=f"token {position} of maze_7, which was not sampled"):
        episodes_to_rows([one_segment_episode()], PAD, lambda episode: [[(position, 1.0)]])


def test_rewards_on_the_same_token_add_up():
    scores = episodes_to_rows([one_segment_episode()], PAD, lambda _: [[(3, 1.0), (3, 0.5)]]).batch
    assert scores["token_level_scores"].tolist() == [[1.5, 0.0, 0.0]]


def test_rows_of_equal_length_keep_their_sampled_tokens_as_lists():
    same = episodes_to_rows([one_segment_episode(), one_segment_episode()], PAD)
    assert list(same.non_tensor_batch["sampled_ids"]) == [[4], [4]]
    assert_only_sampled_tokens_train(same)


def test_a_turn_without_tokens_leaves_no_trace():
    segment = Segment(ids=[1, 2, 3], prompt_length=2, turns=[turn(2, [3]), turn(3, [], reward=0.0)])
    episode = Episode(Task("maze", "m"), 0, 0, 0, [segment], StopReason.CONTEXT_FULL)
    batch = episodes_to_rows([episode], PAD)
    assert batch.batch["response_mask"].tolist() == [[True]]
    assert_only_sampled_tokens_train(batch)


def test_the_proof_accepts_what_was_sampled_in_any_order_of_rows():
    batch = rows()
    assert_only_sampled_tokens_train(batch)
    assert_only_sampled_tokens_train(batch[torch.tensor([2, 0])])


def test_the_proof_fails_when_the_mask_is_shifted_by_one():
    batch = rows()
    batch.batch["response_mask"] = batch.batch["response_mask"].roll(1, dims=1)
    with pytest.raises(AssertionError, match=r"row 0 \(maze-4-17\)"):
        assert_only_sampled_tokens_train(batch)


def test_the_proof_fails_when_the_mask_covers_an_observation():
    batch = rows()
    batch.batch["response_mask"][2, 1] = True
    with pytest.raises(AssertionError, match=r"row 2 \(maze_7\).* 2 tokens"):
        assert_only_sampled_tokens_train(batch)


def test_the_proof_fails_when_an_id_that_would_be_trained_is_altered():
    batch = rows()
    batch.batch["input_ids"][1, 3] = 5
    with pytest.raises(AssertionError, match="row 1"):
        assert_only_sampled_tokens_train(batch)


def test_the_proof_fails_when_a_row_is_moved_without_its_tokens():
    batch = rows()
    batch.batch["input_ids"] = batch.batch["input_ids"].flip(0)
    with pytest.raises(AssertionError, match="row 0"):
        assert_only_sampled_tokens_train(batch)
