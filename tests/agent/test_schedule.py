"""Stragglers of a group are aborted, failures have a budget, and neither keeps the others waiting."""

import asyncio
from dataclasses import replace

import pytest
from playing import Shaky, request, setting

from openmanus_rl.agent.episode import StopReason
from openmanus_rl.agent.schedule import RolloutLimits, TooManyFailures
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.metrics import episode_metrics

DONE, ABORTED, DEADLINE = StopReason.DONE, StopReason.ABORTED, StopReason.DEADLINE
FAR = {"goal": 100}


def in_group(group, *requests):
    return [replace(one, group=group) for one in requests]


def reasons(episodes):
    return [episode.stop_reason for episode in episodes]


def test_when_enough_of_a_group_have_ended_a_straggler_in_the_world_is_aborted(models):
    requests = in_group(3, request("hang", 0), request("up", 1), request("up", 2))
    told = []
    with setting(models / "obedient", rollout=RolloutLimits(retries=2, failure_budget=0.0)) as here:
        episodes = here.agent.play(requests, told.append, enough=2)
        assert here.open_sessions() == 0
    assert reasons(episodes) == [ABORTED, DONE, DONE]
    assert sorted(map(id, told)) == sorted(map(id, episodes)), "the end of an aborted one is told too"
    assert (episodes[0].group, episodes[0].failed_tries) == (3, []), "it is neither a failure nor played again"
    assert episodes[0].failure == "enough episodes of its group had ended"


def test_a_straggler_in_the_engine_is_aborted_and_released(models):
    ended = []
    with setting(models / "obedient") as here:
        generate, release = here.engine.generate, here.engine.release

        async def stuck(prompt_ids, sampling, **more):
            if len(here.engine.heard) == 0:
                here.engine.heard.append((more["session"], prompt_ids, None))
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    ended.append(("aborted", more["session"]))
                    raise
            return await generate(prompt_ids, sampling, **more)

        here.engine.generate = stuck
        here.engine.release = lambda session: (ended.append(("released", session)), release(session))
        episodes = here.agent.play(in_group(0, *(request("up", number) for number in (0, 0, 0))), enough=2)
        straggler = here.engine.heard[0][0]
        assert here.open_sessions() == 0
    assert sorted(reasons(episodes)) == [ABORTED, DONE, DONE]
    assert [what for what, session in ended if session == straggler] == ["aborted", "released"]


def test_other_groups_play_on_when_one_is_complete(models):
    requests = in_group(0, request("up", 1), request("hang", 1)) + in_group(1, request("up", 0), request("up", 0))
    with setting(models / "obedient") as here:
        episodes = here.agent.play(requests, enough=1)
    assert reasons(episodes)[:2] == [DONE, ABORTED]
    assert sorted(reasons(episodes)[2:]) == [ABORTED, DONE], "one is enough, whichever it is"


def test_a_group_never_has_more_samples_than_are_enough(models):
    with setting(models / "obedient") as here:
        episodes = here.agent.play(in_group(0, *(request("up", 2) for _ in range(12))), enough=4)
        assert here.open_sessions() == 0
    assert sorted(reasons(episodes)) == [ABORTED] * 8 + [DONE] * 4


def test_groups_complete_one_after_the_other_however_the_requests_are_ordered(models):
    requests = [replace(request("up", number % 3), group=number % 2) for number in range(6)]
    ended = []
    with setting(models / "obedient", rollout=RolloutLimits(concurrency=1)) as here:
        episodes = here.agent.play(requests, lambda episode: ended.append(episode.group))
    assert ended == [0, 0, 0, 1, 1, 1]
    assert [episode.group for episode in episodes] == [0, 1, 0, 1, 0, 1]


def test_a_world_that_fails_too_often_stops_everything_and_says_why(models):
    requests = [request("crash", 0) for _ in range(6)] + [request("up", number % 3) for number in range(6)]
    limits = RolloutLimits(concurrency=1, retries=1, failure_budget=0.5)
    with setting(models / "obedient", rollout=limits) as here:
        with pytest.raises(
            TooManyFailures, match=r"7 tries at 12 episodes failed: 7 by env_failure.*ValueError"
        ) as told:
            here.agent.play([*requests])
        assert here.open_sessions() == 0
    assert "rollout.failure_budget" in told.value.hint


def test_failures_within_the_budget_leave_the_rest_as_it_is(models):
    requests = [request("crash", 0), *(request("up", number % 3) for number in range(5))]
    with setting(models / "obedient", rollout=RolloutLimits(retries=1, failure_budget=0.34)) as here:
        episodes = here.agent.play(requests)
    assert reasons(episodes) == [StopReason.ENV_FAILURE, *[DONE] * 5]
    metrics = episode_metrics(episodes)
    assert metrics["episode/stop/env_failure"] == pytest.approx(1 / 6)
    assert metrics["episode/retries/env_failure"] == 1


def test_one_episodes_own_retries_are_always_within_the_budget(models):
    with setting(models / "obedient", rollout=RolloutLimits(retries=3, failure_budget=0.0)) as here:
        (episode,) = here.agent.play([request("crash")])
    assert episode.failed_tries == [StopReason.ENV_FAILURE] * 3


def test_a_late_episode_is_counted_as_such_and_played_again(models):
    class SlowAtFirst(Shaky):
        started: list[int] = []  # noqa: RUF012 - shared on purpose: it outlives the sessions

        def reset(self, task):
            self.started.append(0)
            return super().reset(task)

        def misbehave(self, action):
            super().misbehave("hang" if len(self.started) == 1 else action)

    with setting(models / "obedient", SlowAtFirst, rollout=RolloutLimits(episode_timeout=3.0, retries=1)) as here:
        (episode,) = here.agent.play([request("up")])
    assert (episode.stop_reason, episode.failed_tries) == (DONE, [DEADLINE])


def test_oversampling_is_refused_where_bits_must_not_depend_on_the_clock():
    assert RunConfig().rollout.oversample == 0, "it favours short episodes, so it must be asked for"
    with pytest.raises(UserError, match="the clock decides which episodes count"):
        load_checked_config(None, ["rollout.oversample=1", "trainer.deterministic=true"])
