"""Engines in Ray processes: the tokens of an engine in this process, and what happens when one is lost."""

import asyncio
import os
import signal
import time
from contextlib import contextmanager, suppress

import pytest
from toy_workers import Ranked

from openmanus_rl.config.load import load_config
from openmanus_rl.config.schema import ClusterConfig, PoolConfig
from openmanus_rl.distributed.cluster import connected
from openmanus_rl.distributed.errors import RankLost
from openmanus_rl.distributed.ray_engine import RayRollout
from openmanus_rl.distributed.ray_processes import RayProcesses
from openmanus_rl.distributed.worker_group import WorkerGroup
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import FinishReason, SamplingParams
from openmanus_rl.inference.factory import make_engine
from openmanus_rl.models.load import load_causal_lm
from openmanus_rl.workers.registry import find_worker
from openmanus_rl.workers.rollout import RolloutWorker

CONFIG = load_config(None, ["model.max_context=512", "rollout.concurrency=8"])
PROMPT = [5, 17, 3, 9, 60, 2]
TWO = PoolConfig(ranks_per_node=2)


@pytest.fixture(scope="module")
def cluster():
    config = ClusterConfig(pools={"sampling": TWO, "shared": PoolConfig()}, start_timeout=240)
    with connected(config):
        yield config


@pytest.fixture(scope="module")
def sampling(cluster):
    """The processes of the engines."""
    processes = RayProcesses("sampling", TWO, cluster)
    yield processes
    processes.close()


@pytest.fixture(scope="module")
def rollout_and_notes(sampling, model_dir):
    notes = []
    rollout = RayRollout(RolloutWorker, sampling, notes.append, model_dir=model_dir, config=CONFIG)
    yield rollout, notes
    asyncio.run(rollout.close())


@pytest.fixture
def notes(rollout_and_notes):
    """What is told about engines in this test."""
    rollout_and_notes[1].clear()
    return rollout_and_notes[1]


@pytest.fixture
def rollout(rollout_and_notes, model_dir):
    """Two engines with the weights of `model_dir`; a test that kills one has it repaired."""
    engines = rollout_and_notes[0]
    asyncio.run(engines.update_weights(load_causal_lm(model_dir).state_dict(), version=1))
    return engines


def sample(engine, session, max_tokens=24, seed=1, deadline=None):
    sampling = SamplingParams(max_tokens, temperature=1.0)
    return engine.generate(PROMPT, sampling, seed=seed, session=session, deadline=deadline)


@contextmanager
def standing_still(ranks):
    """What is asked of these processes meanwhile waits."""
    for rank in ranks:
        os.kill(rank.place.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(rank.place.pid, signal.SIGCONT)


def halved(model_dir):
    return {name: tensor / 2 for name, tensor in load_causal_lm(model_dir).state_dict().items()}


def test_the_role_is_registered():
    assert find_worker("rollout") is RolloutWorker


def test_engines_elsewhere_sample_and_score_what_one_here_does(rollout, model_dir):
    here = make_engine(CONFIG, model_dir)

    async def compare():
        for index, engine in enumerate(rollout.engines):
            theirs, ours = await asyncio.gather(sample(engine, f"s{index}"), sample(here, f"s{index}"))
            assert theirs.token_ids == ours.token_ids
            assert theirs.log_probs == pytest.approx(ours.log_probs, abs=1e-5)
            assert theirs.finish_reason is FinishReason.LENGTH
            assert await engine.score(PROMPT) == pytest.approx(await here.score(PROMPT), abs=1e-5)
            engine.release(f"s{index}")
        await here.close()

    asyncio.run(compare())


def test_a_deadline_and_an_abort_reach_the_engine(rollout, sampling):
    async def cut_short():
        late = await sample(rollout, "late", max_tokens=500, deadline=time.monotonic())
        with standing_still(sampling.ranks):
            running = asyncio.create_task(sample(rollout, "aborted", max_tokens=500))
            await asyncio.sleep(0.05)
            rollout.abort("aborted")
        ends = late, await running
        rollout.release("late")
        rollout.release("aborted")
        return ends

    late, aborted = asyncio.run(cut_short())
    assert late.finish_reason is FinishReason.DEADLINE
    assert aborted.finish_reason is FinishReason.ABORTED


def test_a_users_mistake_is_told_as_one(rollout):
    with pytest.raises(UserError, match="prompt_ids is empty"):
        asyncio.run(rollout.generate([], SamplingParams(1), seed=0, session="empty"))
    rollout.release("empty")


def test_another_does_the_work_of_a_killed_engine_which_comes_back_with_the_weights(
    rollout, sampling, notes, model_dir
):
    weights = halved(model_dir)
    reference = load_causal_lm(model_dir)
    reference.load_state_dict(weights)
    here = make_engine(CONFIG, model_dir, model=reference)

    async def lose_one():
        await rollout.update_weights(weights, version=3)
        with standing_still(sampling.ranks[1:]):
            running = [asyncio.create_task(sample(rollout, f"s{index}", max_tokens=100)) for index in range(2)]
            await asyncio.sleep(0.05)
            os.kill(sampling.ranks[1].place.pid, signal.SIGKILL)
        ends = await asyncio.gather(*running)
        for session in ("s0", "s1"):
            rollout.release(session)
        return ends

    untouched, asked_again = asyncio.run(lose_one())
    assert untouched.finish_reason is asked_again.finish_reason is FinishReason.LENGTH
    assert set(asked_again.versions) == {3}
    assert rollout.lost == [1]

    rollout.repair()
    assert rollout.lost == []
    assert len(notes) == 1
    assert "rollout engine 1" in notes[0]
    assert "policy 3" in notes[0]

    async def scores():
        return [await engine.score(PROMPT) for engine in [*rollout.engines, here]]

    one, another, expected = asyncio.run(scores())
    assert one == pytest.approx(expected, abs=1e-5)
    assert another == pytest.approx(expected, abs=1e-5)
    assert [engine.version for engine in rollout.engines] == [3, 3]


def test_engines_that_died_unnoticed_are_found_and_brought_back(rollout, sampling, notes):
    for rank in sampling.ranks:
        os.kill(rank.place.pid, signal.SIGKILL)
    rollout.repair()
    assert len(notes) == 2
    assert asyncio.run(sample(rollout, "again")).finish_reason is FinishReason.LENGTH


def test_an_engine_that_lives_with_a_role_that_learns_cannot_come_back_alone(cluster, model_dir):
    processes = RayProcesses("shared", PoolConfig(), cluster)
    WorkerGroup(Ranked, processes, "ranked")
    rollout = RayRollout(RolloutWorker, processes, print, model_dir=model_dir, config=CONFIG)
    os.kill(processes.ranks[0].place.pid, signal.SIGKILL)
    with pytest.raises(RankLost, match="rank 0 of the pool shared"):
        rollout.repair()
    processes.close()
