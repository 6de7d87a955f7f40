"""Requests end, whatever happens: aborts, deadlines, new weights, broken models, other event loops."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import torch
from metered import PATIENCE, Metered
from small_models import build, count_computed_tokens, random_ids

from openmanus_rl.errors import UserError
from openmanus_rl.inference import scheduler
from openmanus_rl.inference.base import FinishReason, SamplingParams
from openmanus_rl.inference.embedded import EmbeddedEngine

ENDLESS = SamplingParams(250)


@pytest.fixture
def engine(llama) -> EmbeddedEngine:
    return EmbeddedEngine(llama)


def run(coroutine):
    """In an event loop of its own, and not for ever."""
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def test_abort_ends_the_running_request_with_what_it_has_and_leaves_others_alone(llama, engine):
    forwards = Metered(llama)

    async def scenario() -> None:
        aborted = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="a"))
        other = asyncio.create_task(engine.generate([2], SamplingParams(60), seed=0, session="b"))
        forwards.allow(20)
        await forwards.reach(21)
        engine.abort("a")
        engine.abort("nobody")
        forwards.allow()
        completion = await aborted
        assert completion.finish_reason is FinishReason.ABORTED
        assert 0 < len(completion.token_ids) < 250
        assert len(completion.token_ids) == len(completion.log_probs) == len(completion.versions)
        assert len((await other).token_ids) == 60
        # The aborted session goes on with the keys it has.
        ids = [1, *completion.token_ids, 5]
        resumed = await engine.generate(ids, SamplingParams(5), seed=1, session="a")
        scores = await engine.score(ids + resumed.token_ids)
        assert scores[-5:] == pytest.approx(resumed.log_probs, abs=2e-5)

    run(scenario())


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The scheduler's time, in a list that a test can write to."""
    now = [100.0]
    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_deadline_returns_what_was_sampled_until_then(llama, engine, clock):
    def take_a_second(*_: object) -> None:
        clock[0] += 1

    llama.register_forward_pre_hook(take_a_second)

    async def scenario() -> None:
        completion = await engine.generate([1], ENDLESS, seed=0, session="a", deadline=clock[0] + 20)
        assert completion.finish_reason is FinishReason.DEADLINE
        assert len(completion.token_ids) == 20
        late = await engine.generate([1], ENDLESS, seed=0, session="a", deadline=clock[0] - 1)
        assert (late.token_ids, late.finish_reason) == ([], FinishReason.DEADLINE)

    run(scenario())


def test_a_request_that_waits_for_a_row_also_meets_its_deadline_and_its_abort(llama, clock):
    forwards = Metered(llama)
    engine = EmbeddedEngine(llama, max_sessions=1)

    async def scenario() -> None:
        running = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="a"))
        forwards.allow(5)
        await forwards.reach(6)
        late = asyncio.create_task(engine.generate([2], ENDLESS, seed=0, session="b", deadline=clock[0] + 1))
        await asyncio.sleep(0)
        clock[0] += 2
        forwards.allow(5)
        expired = await late
        assert (expired.token_ids, expired.finish_reason) == ([], FinishReason.DEADLINE)
        waiting = asyncio.create_task(engine.generate([2], ENDLESS, seed=0, session="c"))
        await asyncio.sleep(0)
        engine.abort("c")
        forwards.allow(5)
        assert (await waiting).finish_reason is FinishReason.ABORTED
        assert not running.done()
        engine.release("a")
        forwards.allow()
        assert (await running).finish_reason is FinishReason.ABORTED

    run(scenario())


def test_a_cancelled_task_takes_its_request_out_of_the_batch(llama, engine):
    forwards = Metered(llama)

    async def scenario() -> None:
        forwards.allow(5)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.generate([1], ENDLESS, seed=0, session="a"), 0.05)
        forwards.allow()
        again = await engine.generate([1], SamplingParams(2), seed=0, session="a")
        assert len(again.token_ids) == 2

    run(scenario())


def test_a_second_request_of_a_running_session_is_an_error(engine):
    async def scenario() -> None:
        first = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="a"))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="still runs"):
            await engine.generate([1], ENDLESS, seed=0, session="a")
        assert len((await first).token_ids) == 250

    run(scenario())


def test_one_engine_serves_one_event_loop_after_another_and_keeps_its_sessions(llama, engine):
    computed = count_computed_tokens(llama)
    prompt = random_ids(30, seed=0)
    first = run(engine.generate(prompt, SamplingParams(4), seed=0, session="a"))
    computed.clear()
    second = run(engine.generate(prompt + first.token_ids, SamplingParams(4), seed=1, session="a"))
    assert len(second.token_ids) == 4
    assert sum(computed) == 4


def test_an_event_loop_that_ends_in_the_middle_harms_no_later_one(llama, engine):
    forwards = Metered(llama)

    async def walk_away() -> None:
        asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="a"))  # noqa: RUF006 - left on purpose
        forwards.allow(5)
        await forwards.reach(6)

    run(walk_away())
    forwards.allow()
    assert len(run(engine.generate([1], SamplingParams(3), seed=0, session="a")).token_ids) == 3


def test_the_event_loop_goes_on_while_the_model_computes(llama, engine):
    forwards = Metered(llama)

    async def scenario() -> None:
        task = asyncio.create_task(engine.generate([1, 2], SamplingParams(4), seed=0, session="a"))
        await forwards.reach(1)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not task.done()
        forwards.allow()
        assert len((await task).token_ids) == 4

    run(scenario())


def test_a_failing_forward_fails_its_requests_and_leaves_the_engine_usable(llama, engine):
    broken = threading.Event()

    def fail_if_broken(*_: object) -> None:
        if broken.is_set():
            raise ValueError("the model broke")

    llama.model.layers[1].register_forward_pre_hook(fail_if_broken)

    async def scenario() -> None:
        before = await engine.generate([1, 2, 3], SamplingParams(5), seed=0, session="a")
        broken.set()
        requests = [engine.generate([1, n], SamplingParams(5), seed=0, session=str(n)) for n in range(4)]
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert [str(result) for result in results] == ["the model broke"] * 4
        with pytest.raises(ValueError, match="the model broke"):
            await engine.score([1, 2])
        broken.clear()
        after = await engine.generate([1, 2, 3], SamplingParams(5), seed=0, session="a")
        assert after == before

    run(scenario())


def test_weights_that_are_not_numbers_fail_the_request_and_leave_no_trace(llama, engine):
    async def scenario() -> None:
        before = await engine.generate([1, 2, 3], SamplingParams(5), seed=0, session="a")
        good = {name: tensor.clone() for name, tensor in llama.state_dict().items()}
        with torch.no_grad():
            llama.model.layers[0].self_attn.v_proj.weight.fill_(float("nan"))
        await engine.update_weights(None, 1)
        for temperature in (0, 1):
            with pytest.raises(FloatingPointError, match="not finite"):
                await engine.generate([1] * 50, SamplingParams(5, temperature=temperature), seed=0, session="a")
        await engine.update_weights(good, 2)
        assert (await engine.generate([1, 2, 3], SamplingParams(5), seed=0, session="a")).log_probs == before.log_probs

    run(scenario())


def test_after_an_update_no_key_of_the_old_weights_is_used(llama, engine):
    async def scenario() -> None:
        ids = random_ids(40, seed=0)
        first = await engine.generate(ids, SamplingParams(8), seed=0, session="a")
        ids = [*ids, *first.token_ids, 7]
        with torch.no_grad():
            for parameter in llama.parameters():
                parameter.mul_(1.1)
        await engine.update_weights(None, 3)
        assert engine.version == 3
        second = await engine.generate(ids, SamplingParams(8), seed=1, session="a")
        assert second.versions == [3] * 8
        scores = await engine.score(ids + second.token_ids)
        assert scores[-8:] == pytest.approx(second.log_probs, abs=2e-5)

    run(scenario())


def test_a_state_dict_is_loaded_and_a_wrong_one_refused():
    model, other = build("qwen3"), build("qwen3")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.2)
    engine = EmbeddedEngine(model)
    weights = other.state_dict()
    del weights["lm_head.weight"]  # tied to the embedding

    async def scenario() -> None:
        with pytest.raises(UserError, match="not those of this model"):
            await engine.update_weights({"nonsense": torch.zeros(1)}, 1)
        assert engine.version == 0
        await engine.update_weights(weights, 1)
        assert await engine.score([1, 2, 3]) == await EmbeddedEngine(other).score([1, 2, 3])
        assert all(parameter.requires_grad for parameter in model.parameters())

    run(scenario())


def test_each_token_carries_the_version_it_was_sampled_with_across_an_update_in_the_middle(llama, engine):
    forwards = Metered(llama)
    prompt = random_ids(20, seed=0)

    async def scenario() -> None:
        task = asyncio.create_task(engine.generate(prompt, SamplingParams(100), seed=0, session="a"))
        forwards.allow(30)
        await forwards.reach(31)
        old = {name: tensor.clone() for name, tensor in llama.state_dict().items()}
        update = asyncio.create_task(engine.update_weights({name: 1.2 * old[name] for name in old}, 1))
        await asyncio.sleep(0)
        forwards.allow()
        await update
        completion = await task
        switch = completion.versions.index(1)
        assert 0 < switch < 100
        assert completion.versions == [0] * switch + [1] * (100 - switch)
        ids = prompt + completion.token_ids
        new_scores = (await engine.score(ids))[len(prompt) - 1 :]
        await engine.update_weights(old, 2)
        old_scores = (await engine.score(ids))[len(prompt) - 1 :]
        expected = old_scores[:switch] + new_scores[switch:]
        assert completion.log_probs == pytest.approx(expected, abs=2e-5)

    run(scenario())


def test_close_ends_what_runs_and_refuses_what_comes(llama, engine):
    forwards = Metered(llama)

    async def scenario() -> None:
        running = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="a"))
        forwards.allow(5)
        await forwards.reach(6)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        forwards.allow()
        await closing
        assert (await running).finish_reason is FinishReason.ABORTED
        with pytest.raises(RuntimeError, match="closed"):
            await engine.generate([1], ENDLESS, seed=0, session="a")
        engine.release("a")
        await engine.close()

    run(scenario())


def test_training_still_works_after_sampling(llama, engine):
    run(engine.generate([1, 2, 3], SamplingParams(5), seed=0, session="a"))
    ids = torch.tensor([[1, 2, 3, 4]])
    llama(ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in llama.parameters())
