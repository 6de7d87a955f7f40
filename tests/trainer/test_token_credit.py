"""What a record says of a token is what the update was given for it."""

import pytest
import torch

from openmanus_rl.agent.episode import Episode, Segment, StopReason, Turn
from openmanus_rl.agent.rows import episodes_to_rows
from openmanus_rl.envs.base import Task
from openmanus_rl.trainer.token_credit import credit_of_tokens, rows_of_first


def episode(group, first_token, stop_reason=StopReason.DONE):
    """Two segments, the first with two turns and an observation between them."""

    def turn(start, ids):
        return Turn(start, ids, [-1.0] * len(ids), [0] * len(ids), "", "up", None, None)

    ids = list(range(first_token, first_token + 8))
    first = Segment(ids, 2, [turn(2, ids[2:4]), turn(6, ids[6:8])])
    second = Segment(ids[:5], 4, [turn(4, ids[4:5])])
    return Episode(Task("maze", f"maze_{group}"), group, 0, 0, [first, second], stop_reason)


def credited(episodes):
    """Rows on which every token's advantage is its own id, and its log-prob a hundredth of that, negative."""
    batch = episodes_to_rows([played for played in episodes if played.stop_reason.is_sample], pad_token_id=0)
    batch.batch["advantages"] = batch.batch["responses"].float()
    batch.batch["trainer_log_probs"] = -batch.batch["responses"].float() / 100
    return batch


def test_rows_find_their_tokens_past_failed_episodes_and_dropped_groups():
    failed = episode(0, 100, StopReason.ENV_FAILURE)
    dropped, kept = episode(1, 200), episode(2, 300)
    batch = credited([failed, dropped, kept])
    batch = batch[batch.batch["group_index"] == 2][torch.tensor([1, 0])]
    credit = credit_of_tokens(batch, [failed, dropped, kept])
    assert credit(failed) is None
    assert credit(dropped) is None
    first, second = credit(kept)
    assert first.advantages == [None, None, 302, 303, None, None, 306, 307]
    assert first.log_probs == [None, None, -3.02, -3.03, None, None, -3.06, -3.07]
    assert second.advantages == [None] * 4 + [304]


def test_the_rows_of_the_first_episodes_are_found_past_failed_ones():
    failed, first, second = episode(0, 100, StopReason.ENV_FAILURE), episode(1, 200), episode(2, 300)
    batch = credited([failed, first, second])
    assert rows_of_first(batch, [failed, first, second], 2).batch["group_index"].tolist() == [1, 1]
    assert len(rows_of_first(batch, [failed, first, second], 0)) == 0


def test_a_batch_from_which_everything_was_dropped_credits_nobody():
    played = episode(0, 100)
    assert credit_of_tokens(credited([played])[torch.tensor([False, False])], [played])(played) is None


def test_rows_of_other_episodes_are_refused():
    one, other = episode(0, 100), episode(0, 200)
    with pytest.raises(AssertionError, match="not made from the segment"):
        credit_of_tokens(credited([one]), [other])(other)
