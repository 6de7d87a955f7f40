"""Every way an episode can end, each by its real cause, and what follows from it."""

import os
import signal
import time

import pytest
import torch
from playing import request, setting

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.openmanus import RolloutLimits
from openmanus_rl.agent.rows import episodes_to_rows
from openmanus_rl.envs.client.native import NativeClient
from openmanus_rl.envs.launch import launch_servers
from openmanus_rl.envs.service.sessions import Limits

FAR = {"goal": 100}


@pytest.mark.parametrize(
    ("reason", "is_sample", "bootstraps"),
    [
        ("done", True, False),
        ("truncated", True, True),
        ("max_turns", True, True),
        ("token_budget", True, True),
        ("context_full", True, True),
        ("invalid_action", True, False),
        ("env_failure", False, False),
        ("env_timeout", False, False),
        ("engine_failure", False, False),
        ("reward_failure", False, False),
        ("deadline", False, False),
        ("aborted", False, False),
    ],
)
def test_what_follows_from_a_stop_reason_is_the_designs_table(reason, is_sample, bootstraps):
    assert StopReason(reason).is_sample is is_sample
    assert StopReason(reason).bootstraps is bootstraps


def test_the_table_leaves_no_reason_out():
    assert len(StopReason) == 12


def bootstrap_flag(episode):
    return bool(episodes_to_rows([episode], pad_token_id=0).batch["bootstrap"].item())


def test_done_where_the_world_ends_the_task(models):
    with setting(models / "obedient") as here:
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
    assert (episode.stop_reason, episode.success, len(episode.turns)) == (StopReason.DONE, True, 3)
    assert not bootstrap_flag(episode)


def test_truncated_where_the_worlds_own_limit_cuts_the_task(models):
    with setting(models / "obedient", options={**FAR, "cut": 2}) as here:
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
    assert (episode.stop_reason, episode.success, len(episode.turns)) == (StopReason.TRUNCATED, False, 2)
    assert bootstrap_flag(episode)


def test_max_turns_after_as_many_turns(models):
    with setting(models / "obedient", options=FAR, agent={"max_turns": 4}) as here:
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
    assert (episode.stop_reason, len(episode.turns)) == (StopReason.MAX_TURNS, 4)
    assert bootstrap_flag(episode)


def test_token_budget_when_the_episodes_sampled_tokens_are_spent(models):
    with setting(models / "obedient", options=FAR, agent={"max_episode_tokens": 8}) as here:
        (episode,) = here.agent.play([request("up")])
    assert (episode.stop_reason, episode.sampled_tokens) == (StopReason.TOKEN_BUDGET, 8)
    assert len(episode.turns[1].token_ids) < len(episode.turns[0].token_ids), "the last turn got what was left"
    assert bootstrap_flag(episode)


def test_context_full_when_the_next_turn_would_not_fit(models):
    with setting(models / "obedient", options=FAR, max_context=64) as here:
        (episode,) = here.agent.play([request("up")])
    assert episode.stop_reason is StopReason.CONTEXT_FULL
    assert 64 - 16 < len(episode.segments[0].ids) <= 64
    assert len(episode.turns) > 1
    assert bootstrap_flag(episode)


def test_context_full_when_the_engines_context_is_shorter_than_the_agents(models):
    with setting(models / "obedient", options=FAR, engine_context=18) as here:
        (episode,) = here.agent.play([request("up")])
    assert (episode.stop_reason, len(episode.segments[0].ids)) == (StopReason.CONTEXT_FULL, 18)
    with setting(models / "obedient", options=FAR, engine_context=10) as here:
        (episode,) = here.agent.play([request("up")])
    assert (episode.stop_reason, episode.sampled_tokens) == (StopReason.CONTEXT_FULL, 0)


def test_invalid_action_where_the_policy_says_end(models):
    with setting(models / "obedient", agent={"invalid_action": "end"}) as here:
        (episode,) = here.agent.play([request("babble")])
        assert here.open_sessions() == 0
    assert (episode.stop_reason, len(episode.turns)) == (StopReason.INVALID_ACTION, 1)
    assert episode.turns[0].reward == pytest.approx(-0.05)
    assert not bootstrap_flag(episode)


def test_env_failure_when_the_world_raises(models):
    with setting(models / "obedient") as here:
        (episode,) = here.agent.play([request("crash")])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.ENV_FAILURE
    assert "ValueError" in episode.failure


def test_env_failure_when_the_world_does_not_know_the_task(models):
    with setting(models / "obedient") as here:
        (episode,) = here.agent.play([request("up", number="x_1")])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.ENV_FAILURE
    assert "is not an item of counter" in episode.failure


def test_env_failure_when_the_server_is_killed_under_an_episode(models, tmp_path):
    servers = launch_servers("wordle", log_dir=tmp_path)

    class KillsTheServer(NativeClient):
        async def step(self, handle, action):
            for pid in servers.pids:
                os.kill(pid, signal.SIGKILL)
            return await super().step(handle, action)

    with servers, setting(models / "obedient", env_name="wordle", client=KillsTheServer, url=servers.urls[0]) as here:
        (episode,) = here.agent.play([request("up", env="wordle")])
    assert episode.stop_reason is StopReason.ENV_FAILURE
    assert servers.urls[0] in episode.failure


def test_env_timeout_when_the_world_hangs(models):
    with setting(models / "obedient", options={"nap": 600}, service=Limits(step_seconds=0.5)) as here:
        (episode,) = here.agent.play([request("hang")])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.ENV_TIMEOUT
    assert "did not answer" in episode.failure


def test_env_timeout_when_the_server_does_not_answer_in_time(models):
    with setting(models / "obedient", options={"nap": 2.0}, step_seconds=0.2) as here:
        (episode,) = here.agent.play([request("hang")])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.ENV_TIMEOUT


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), IndexError("index out of range in self")])
def test_engine_failure_when_the_forward_raises(models, error):
    def break_down(*_):
        raise error

    with setting(models / "obedient") as here:
        broken = here.model.register_forward_pre_hook(break_down)
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
        assert episode.stop_reason is StopReason.ENGINE_FAILURE
        assert str(error) in episode.failure
        broken.remove()
        assert here.agent.play([request("up")])[0].stop_reason is StopReason.DONE


def test_engine_failure_when_the_weights_are_not_finite(models):
    with setting(models / "obedient") as here:
        with torch.no_grad():
            next(here.model.parameters()).fill_(float("nan"))
        (episode,) = here.agent.play([request("up", temperature=1.0)])
    assert episode.stop_reason is StopReason.ENGINE_FAILURE
    assert "not finite" in episode.failure


def test_deadline_when_the_world_is_too_slow_for_the_episodes_time(models):
    """Each of the turns takes 0.2 s or more, so they cannot all fit."""
    limits = RolloutLimits(episode_timeout=1.0, retries=0)
    with setting(models / "obedient", options=FAR, agent={"max_turns": 30}, rollout=limits) as here:
        (episode,) = here.agent.play([request("doze")])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.DEADLINE
    assert "longer than 1 s" in episode.failure or "deadline" in episode.failure


def test_deadline_when_the_engine_is_too_slow_for_the_episodes_time(models):
    with setting(models / "obedient", options=FAR, rollout=RolloutLimits(episode_timeout=0.4, retries=0)) as here:
        here.model.register_forward_pre_hook(lambda *_: time.sleep(0.1))
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.DEADLINE


def test_aborted_when_someone_aborts_the_session(models):
    with setting(models / "obedient", options=FAR) as here:
        generate = here.engine.generate

        async def aborted(prompt_ids, sampling, **more):
            here.model.register_forward_pre_hook(lambda *_: here.engine.abort(more["session"]))
            return await generate(prompt_ids, sampling, **more)

        here.engine.generate = aborted
        (episode,) = here.agent.play([request("up")])
        assert here.open_sessions() == 0
    assert episode.stop_reason is StopReason.ABORTED
    assert "aborted" in episode.failure


def test_a_failed_episode_makes_no_row(models):
    with setting(models / "obedient") as here:
        (episode,) = here.agent.play([request("crash")])
    with pytest.raises(ValueError, match="a failed episode is not a sample: counter_0 ended by env_failure"):
        episodes_to_rows([episode], pad_token_id=0)
