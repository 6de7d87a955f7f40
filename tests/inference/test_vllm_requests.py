"""vLLM samples what plain forwards of the model would sample, and its requests end as an engine's must."""

import asyncio
import random
import time

import pytest
from small_models import LONG_CONTEXT, build, greedy_by_transformers, plain_log_probs, random_ids
from vllm_cases import run, running, saved_llama, vllm_config

from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, FinishReason, SamplingParams

ENDLESS = SamplingParams(LONG_CONTEXT)


@pytest.fixture(scope="module")
def model():
    return build("vllm llama")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with running(saved_llama(tmp_path_factory.mktemp("model")), vllm_config()) as engine:
        yield engine


def assert_close_to_plain(model, prompt: list[int], completion: Completion, temperature: float = 1.0) -> None:
    sampled = completion.token_ids
    expected = plain_log_probs(model, prompt + sampled, len(sampled), temperature)
    assert completion.log_probs == pytest.approx(expected, abs=1e-4)


def test_greedy_equals_transformers_generate(engine, model):
    prompts = [random_ids(length, seed=length) for length in (1, 2, 31, 32, 33, 70)]

    async def scenario() -> list[Completion]:
        greedy = SamplingParams(12, temperature=0)
        return await asyncio.gather(
            *(engine.generate(ids, greedy, seed=0, session=str(i)) for i, ids in enumerate(prompts))
        )

    for prompt, completion in zip(prompts, run(scenario()), strict=True):
        assert completion.token_ids == greedy_by_transformers(model, prompt, 12)
        assert completion.log_probs == [0.0] * 12
        assert completion.versions == [0] * 12
        assert completion.finish_reason is FinishReason.LENGTH


def test_many_turns_of_many_episodes_give_the_log_probs_of_plain_forwards(engine, model):
    log: list = []

    async def play(index: int) -> None:
        chance = random.Random(index)
        ids = random_ids(chance.randrange(1, 80), seed=index)
        for turn in range(4):
            sampling = SamplingParams(chance.randrange(1, 12), temperature=chance.choice([0.7, 1.0]))
            completion = await engine.generate(ids, sampling, seed=100 * index + turn, session=f"episode {index}")
            log.append((ids, completion, sampling.temperature))
            ids = ids + completion.token_ids + random_ids(chance.randrange(0, 40), seed=1000 * index + turn)
        engine.release(f"episode {index}")

    async def scenario() -> None:
        await asyncio.gather(*(play(index) for index in range(10)))

    run(scenario())
    assert len(log) == 40
    for prompt, completion, temperature in log:
        assert_close_to_plain(model, prompt, completion, temperature)


def test_log_probs_are_those_of_the_truncated_distribution(engine):
    async def scenario() -> None:
        one = await engine.generate([1, 2, 3], SamplingParams(8, top_k=1), seed=0, session="a")
        assert one.log_probs == pytest.approx([0.0] * 8, abs=1e-6)
        two = await engine.generate([1, 2, 3], SamplingParams(40, temperature=2.0, top_k=2), seed=0, session="a")
        assert min(two.log_probs) < max(two.log_probs) <= 0

    run(scenario())


def test_the_seed_decides_what_is_sampled(engine):
    async def scenario() -> None:
        sampling = SamplingParams(30)
        first = await engine.generate([1], sampling, seed=7, session="a")
        again = await engine.generate([1], sampling, seed=7, session="b")
        other = await engine.generate([1], sampling, seed=2**63 - 1, session="c")
        assert first.token_ids == again.token_ids != other.token_ids

    run(scenario())


def test_a_stop_token_ends_the_completion_and_is_part_of_it(engine):
    prompt = random_ids(10, seed=0)

    async def scenario() -> None:
        free = await engine.generate(prompt, SamplingParams(16, temperature=0), seed=0, session="a")
        stop = free.token_ids[5]
        stopping = SamplingParams(16, temperature=0, stop_token_ids=frozenset({stop}))
        stopped = await engine.generate(prompt, stopping, seed=0, session="b")
        assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
        assert stopped.finish_reason is FinishReason.STOP

    run(scenario())


def test_the_context_is_filled_to_its_last_token_and_no_further(engine):
    prompt = random_ids(LONG_CONTEXT - 12, seed=0)

    async def scenario() -> None:
        completion = await engine.generate(prompt, SamplingParams(100), seed=0, session="a")
        assert (len(completion.token_ids), completion.finish_reason) == (12, FinishReason.CONTEXT)
        exact = await engine.generate(prompt, SamplingParams(12), seed=0, session="a")
        assert (len(exact.token_ids), exact.finish_reason) == (12, FinishReason.LENGTH)
        full = await engine.generate(prompt + completion.token_ids, SamplingParams(1), seed=0, session="a")
        assert (full.token_ids, full.finish_reason) == ([], FinishReason.CONTEXT)

    run(scenario())


def test_more_prompt_tokens_than_one_step_computes_wait_for_the_next(engine, model):
    prompts = [random_ids(1500, seed=index) for index in range(4)]

    async def scenario() -> list[Completion]:
        requests = [engine.generate(ids, SamplingParams(3), seed=5, session=str(i)) for i, ids in enumerate(prompts)]
        together = await asyncio.gather(*requests)
        alone = await engine.generate(prompts[3], SamplingParams(3), seed=5, session="a")
        assert alone.token_ids == together[3].token_ids
        return together

    for prompt, completion in zip(prompts, run(scenario()), strict=True):
        assert_close_to_plain(model, prompt, completion)


def test_score_is_that_of_transformers_also_where_the_prompt_was_seen_before(engine, model):
    ids = random_ids(200, seed=4)

    async def scenario() -> None:
        await engine.generate(ids, SamplingParams(1), seed=0, session="a")
        for _ in range(2):
            assert await engine.score(ids) == pytest.approx(plain_log_probs(model, ids, 199), abs=1e-4)
        with pytest.raises(UserError, match="temperature 1"):
            await engine.score(ids, temperature=0.5)

    run(scenario())


def test_a_deadline_returns_what_was_sampled_until_then(engine):
    async def scenario() -> Completion:
        late = await engine.generate([1], ENDLESS, seed=0, session="a", deadline=time.monotonic() - 1)
        assert (late.token_ids, late.finish_reason) == ([], FinishReason.DEADLINE)
        for seconds in (0.3, 1, 3, 9):  # the first is enough where the machine is not busy
            completion = await engine.generate([1], ENDLESS, seed=0, session="a", deadline=time.monotonic() + seconds)
            assert completion.finish_reason is FinishReason.DEADLINE
            assert len(completion.token_ids) == len(completion.log_probs) == len(completion.versions)
            if completion.token_ids:
                break
        return completion

    assert 0 < len(run(scenario()).token_ids) < LONG_CONTEXT - 1


def test_abort_ends_the_running_request_and_leaves_others_alone(engine):
    async def scenario() -> None:
        at_once = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="a"))
        later = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="b"))
        released = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="c"))
        other = asyncio.create_task(engine.generate([2], SamplingParams(60), seed=0, session="d"))
        await asyncio.sleep(0)
        engine.abort("a")
        assert (await at_once).finish_reason is FinishReason.ABORTED
        assert len((await other).token_ids) == 60
        engine.abort("b")
        engine.release("c")
        engine.abort("nobody")
        engine.release("nobody")
        aborted = await later
        assert aborted.finish_reason is (await released).finish_reason is FinishReason.ABORTED
        assert 0 < len(aborted.token_ids) < LONG_CONTEXT - 1
        again = await engine.generate([1, *aborted.token_ids], SamplingParams(3), seed=0, session="b")
        assert len(again.token_ids) == 3

    run(scenario())


def test_a_second_request_of_a_running_session_is_an_error_and_a_cancelled_one_frees_it(engine):
    async def scenario() -> None:
        first = asyncio.create_task(engine.generate([1], ENDLESS, seed=0, session="a"))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="still runs"):
            await engine.generate([1], SamplingParams(1), seed=0, session="a")
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        engine.abort("a")  # comes after the cancellation, so that the session is free afterwards
        while True:
            try:
                again = await engine.generate([1], SamplingParams(2), seed=0, session="a")
                break
            except RuntimeError:
                await asyncio.sleep(0.01)
        assert len(again.token_ids) == 2

    run(scenario())


def test_what_makes_no_sense_is_refused(engine):
    for prompt, sampling in (
        ([], SamplingParams(1)),
        ([1], SamplingParams(0)),
        ([1], SamplingParams(1, temperature=3)),
    ):
        with pytest.raises(UserError):
            run(engine.generate(prompt, sampling, seed=0, session="a"))


def test_a_model_that_vllm_cannot_run_is_refused_before_anything_starts(tmp_path):
    build("llama").save_pretrained(tmp_path)  # heads of 16
    started = time.monotonic()
    with pytest.raises(UserError, match="heads have 16"), running(str(tmp_path), vllm_config()):
        pass
    assert time.monotonic() - started < 60


def test_a_block_size_that_vllm_cannot_use_is_refused(tmp_path):
    with pytest.raises(UserError, match="block_size=48"), running(saved_llama(tmp_path), vllm_config(block_size=48)):
        pass
