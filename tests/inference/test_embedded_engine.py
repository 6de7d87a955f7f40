"""The embedded engine samples what plain forwards of the model would sample."""

import asyncio
import random

import pytest
from metered import Metered
from small_models import (
    CONTEXT,
    build,
    count_computed_tokens,
    greedy_by_transformers,
    plain_log_probs,
    random_ids,
)

from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import Completion, FinishReason, SamplingParams
from openmanus_rl.inference.embedded import EmbeddedEngine

GREEDY = SamplingParams(16, temperature=0)


def assert_close_to_plain(model, prompt: list[int], completion: Completion, temperature: float = 1.0) -> None:
    sampled = completion.token_ids
    expected = plain_log_probs(model, prompt + sampled, len(sampled), temperature)
    assert completion.log_probs == pytest.approx(expected, abs=2e-5)


def test_greedy_equals_transformers_generate_for_prompts_of_all_lengths_at_once(any_model):
    engine = EmbeddedEngine(any_model)
    prompts = [random_ids(length, seed=length) for length in range(1, 25)]

    async def run() -> list[Completion]:
        return await asyncio.gather(
            *(engine.generate(ids, GREEDY, seed=0, session=str(i)) for i, ids in enumerate(prompts))
        )

    for prompt, completion in zip(prompts, asyncio.run(run()), strict=True):
        assert completion.token_ids == greedy_by_transformers(any_model, prompt, 16)
        assert completion.log_probs == [0.0] * 16
        assert completion.finish_reason is FinishReason.LENGTH


async def play_episode(engine: EmbeddedEngine, index: int, turns: int, log: list) -> list[int]:
    """Turns of different lengths with observations in between, as an agent would."""
    chance = random.Random(index)
    ids = random_ids(chance.randrange(1, 30), seed=index)
    for turn in range(turns):
        sampling = SamplingParams(chance.randrange(1, 12), temperature=chance.choice([0.7, 1.0]))
        completion = await engine.generate(ids, sampling, seed=100 * index + turn, session=f"episode {index}")
        log.append((ids, completion, sampling.temperature))
        ids = ids + completion.token_ids + random_ids(chance.randrange(0, 9), seed=1000 * index + turn)
        await asyncio.sleep(chance.random() * 0.004)
    engine.release(f"episode {index}")
    return ids


def test_keys_kept_between_turns_give_the_log_probs_of_a_plain_forward(any_model):
    engine = EmbeddedEngine(any_model)
    log: list = []

    async def run() -> None:
        await asyncio.gather(*(play_episode(engine, index, turns=5, log=log) for index in range(12)))

    asyncio.run(run())
    assert len(log) == 60
    for prompt, completion, temperature in log:
        assert_close_to_plain(any_model, prompt, completion, temperature)


def test_one_episode_at_a_time_and_32_at_once_sample_the_same_tokens(llama):
    llama.double()  # so that rounding, which depends on who is in a batch, moves no token

    async def together() -> list[list[int]]:
        engine = EmbeddedEngine(llama)
        return await asyncio.gather(*(play_episode(engine, index, turns=3, log=[]) for index in range(32)))

    async def one_by_one() -> list[list[int]]:
        engine = EmbeddedEngine(llama)
        return [await play_episode(engine, index, turns=3, log=[]) for index in range(32)]

    assert asyncio.run(together()) == asyncio.run(one_by_one())


@pytest.mark.parametrize(
    "limits", [{"max_sessions": 3}, {"prefill_tokens": 5}, {"max_sessions": 2, "prefill_tokens": 3}], ids=str
)
def test_scarce_rows_and_small_chunks_change_nothing_but_speed(llama, limits):
    """Sessions wait for a row, lose theirs to others between turns, and have their prompts cut into pieces."""
    llama.double()  # so that rounding, which depends on who is in a batch, moves no token

    async def run(engine: EmbeddedEngine) -> list[list[int]]:
        return await asyncio.gather(*(play_episode(engine, index, turns=3, log=[]) for index in range(8)))

    assert asyncio.run(run(EmbeddedEngine(llama, **limits))) == asyncio.run(run(EmbeddedEngine(llama)))


def test_a_turn_computes_only_what_the_session_has_not_seen(llama):
    engine = EmbeddedEngine(llama)
    computed = count_computed_tokens(llama)

    async def run() -> None:
        ids = random_ids(40, seed=0)
        first = await engine.generate(ids, SamplingParams(10), seed=0, session="a")
        assert sum(computed) == 40 + 9
        computed.clear()
        ids = ids + first.token_ids + random_ids(5, seed=1)
        await engine.generate(ids, SamplingParams(1), seed=0, session="a")
        assert sum(computed) == 1 + 5  # the last sampled token and the observation
        computed.clear()
        await engine.generate(ids, SamplingParams(1), seed=1, session="a")
        assert sum(computed) == 1  # the same prompt again: its last token
        computed.clear()
        await engine.generate([*ids[:20], 1, 2, 3], SamplingParams(1), seed=1, session="a")
        assert sum(computed) <= 4  # another continuation of the first 20 tokens
        engine.release("a")
        computed.clear()
        await engine.generate(ids, SamplingParams(1), seed=1, session="a")
        assert sum(computed) == 55  # a forgotten session

    asyncio.run(run())


def test_a_session_that_goes_back_and_continues_otherwise_sees_no_stale_keys(llama):
    engine = EmbeddedEngine(llama)
    prompt = random_ids(50, seed=3)

    async def run() -> None:
        await engine.generate(prompt, SamplingParams(20), seed=0, session="a")
        for length in (45, 10, 1):
            other = prompt[:length] + random_ids(6, seed=length)
            assert_close_to_plain(llama, other, await engine.generate(other, SamplingParams(8), seed=1, session="a"))

    asyncio.run(run())


def test_the_idle_session_unused_for_longest_loses_its_row(llama):
    engine = EmbeddedEngine(llama, max_sessions=2)
    prompt = random_ids(30, seed=0)
    computed = count_computed_tokens(llama)

    async def cost(session: str) -> int:
        computed.clear()
        await engine.generate(prompt, SamplingParams(1), seed=0, session=session)
        return sum(computed)

    async def run() -> list[int]:
        return [await cost(session) for session in ["a", "b", "a", "c", "a", "b"]]

    assert asyncio.run(run()) == [30, 30, 1, 30, 1, 30]


def test_sessions_that_move_to_other_rows_keep_their_keys(llama):
    """Two of eight sessions continue alone and change places with idle ones; later all go on together."""
    engine = EmbeddedEngine(llama)
    histories = [random_ids(10 + 3 * index, seed=index) for index in range(8)]

    async def play(index: int) -> None:
        completion = await engine.generate(histories[index], SamplingParams(6), seed=index, session=str(index))
        assert_close_to_plain(llama, histories[index], completion)
        histories[index] += [*completion.token_ids, index]

    async def run() -> None:
        await asyncio.gather(*(play(index) for index in range(8)))
        for pair in ((6, 7), (2, 5)):
            await asyncio.gather(*(play(index) for index in pair))
        computed = count_computed_tokens(llama)
        requests = [engine.generate(ids, SamplingParams(1), seed=0, session=str(i)) for i, ids in enumerate(histories)]
        completions = await asyncio.gather(*requests)
        assert sum(computed) == 8 * 2  # nobody's keys were lost on the way
        for ids, completion in zip(histories, completions, strict=True):
            assert_close_to_plain(llama, ids, completion)

    asyncio.run(run())


def test_a_request_joins_while_others_run(llama):
    forwards = Metered(llama)
    engine = EmbeddedEngine(llama)

    async def run() -> None:
        long = asyncio.create_task(engine.generate([1, 2, 3], SamplingParams(200), seed=0, session="long"))
        forwards.allow(10)
        await forwards.reach(11)
        waiting = asyncio.create_task(engine.generate([4, 5], SamplingParams(3), seed=1, session="short"))
        await asyncio.sleep(0)
        forwards.allow(20)
        short = await waiting
        assert not long.done()
        forwards.allow()
        assert_close_to_plain(llama, [4, 5], short)
        assert_close_to_plain(llama, [1, 2, 3], await long)

    asyncio.run(run())


def test_a_stop_token_ends_the_completion_and_is_part_of_it(llama):
    engine = EmbeddedEngine(llama)
    prompt = random_ids(10, seed=0)

    async def run() -> None:
        free = await engine.generate(prompt, GREEDY, seed=0, session="a")
        stop = free.token_ids[5]
        stopping = SamplingParams(16, temperature=0, stop_token_ids=frozenset({stop}))
        stopped = await engine.generate(prompt, stopping, seed=0, session="b")
        assert stopped.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
        assert stopped.finish_reason is FinishReason.STOP

    asyncio.run(run())


def test_the_context_is_filled_to_its_last_token_and_no_further(llama):
    engine = EmbeddedEngine(llama, max_context=32)

    async def run() -> None:
        prompt = random_ids(20, seed=0)
        completion = await engine.generate(prompt, SamplingParams(100), seed=0, session="a")
        assert len(completion.token_ids) == 12
        assert completion.finish_reason is FinishReason.CONTEXT
        assert_close_to_plain(llama, prompt, completion)
        full = await engine.generate(prompt + completion.token_ids, SamplingParams(1), seed=0, session="a")
        assert (full.token_ids, full.finish_reason) == ([], FinishReason.CONTEXT)
        # The full row stands idle beside others that compute.
        other = await asyncio.gather(
            *(engine.generate(random_ids(9, n), SamplingParams(9), seed=0, session=str(n)) for n in range(3))
        )
        assert_close_to_plain(llama, random_ids(9, 2), other[2])

    asyncio.run(run())


def test_log_probs_also_agree_at_the_end_of_the_models_context(llama):
    engine = EmbeddedEngine(llama)
    prompt = random_ids(CONTEXT - 40, seed=0)

    async def run() -> Completion:
        return await engine.generate(prompt, SamplingParams(100), seed=0, session="a")

    completion = asyncio.run(run())
    assert len(completion.token_ids) == 40
    assert_close_to_plain(llama, prompt, completion)


def test_score_gives_the_log_probs_that_were_sampled(llama):
    engine = EmbeddedEngine(llama)

    async def run() -> None:
        completion = await engine.generate([1, 2, 3], SamplingParams(10, temperature=0.5), seed=0, session="a")
        scores = await engine.score([1, 2, 3, *completion.token_ids], temperature=0.5)
        assert len(scores) == 12
        assert scores[2:] == pytest.approx(completion.log_probs, abs=2e-5)

    asyncio.run(run())


def test_the_seed_decides_what_is_sampled(llama):
    engine = EmbeddedEngine(llama)

    async def run() -> None:
        sampling = SamplingParams(30)
        first, again, other = await asyncio.gather(
            *(engine.generate([1], sampling, seed=s, session=str(i)) for i, s in enumerate([7, 7, 8]))
        )
        assert first.token_ids == again.token_ids != other.token_ids

    asyncio.run(run())


def test_a_model_in_training_mode_samples_without_dropout_and_stays_in_training_mode():
    model = build("gpt2")
    engine = EmbeddedEngine(model)
    model.train()

    async def run() -> Completion:
        return await engine.generate([1, 2, 3], SamplingParams(20), seed=0, session="a")

    completion = asyncio.run(run())
    assert model.training
    model.eval()
    assert_close_to_plain(model, [1, 2, 3], completion)


def test_what_the_engine_cannot_run_is_refused():
    from transformers import MistralConfig, MistralForCausalLM

    sliding = MistralForCausalLM(
        MistralConfig(
            vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, sliding_window=8,
        )
    )  # fmt: skip
    with pytest.raises(UserError, match="sliding_attention"):
        EmbeddedEngine(sliding)
    with pytest.raises(UserError, match="positions"):
        EmbeddedEngine(build("llama"), max_context=CONTEXT + 1)


@pytest.mark.parametrize(
    ("prompt", "sampling"),
    [
        ([], SamplingParams(1)),
        ([1], SamplingParams(0)),
        ([1], SamplingParams(1, temperature=-1)),
        ([1], SamplingParams(1, top_p=0)),
        ([1], SamplingParams(1, top_k=-1)),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(llama, prompt, sampling):
    with pytest.raises(UserError):
        asyncio.run(EmbeddedEngine(llama).generate(prompt, sampling, seed=0, session="a"))
