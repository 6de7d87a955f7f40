"""A deterministic engine gives the same bits, whoever else is in the batch and whatever happened before."""

import asyncio
import random
from collections.abc import Sequence

import pytest
import torch
from metered import Metered
from small_models import CONTEXT, VOCABULARY, build

from openmanus_rl.inference.base import Completion, FinishReason, SamplingParams
from openmanus_rl.inference.deterministic import MOST_ROWS
from openmanus_rl.inference.embedded import EmbeddedEngine

Sampled = list[tuple[list[int], list[float]]]


def random_ids(length: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(VOCABULARY), k=length)


def deterministic_engine(model: torch.nn.Module, **limits: int) -> EmbeddedEngine:
    return EmbeddedEngine(model, deterministic=True, **limits)


async def play(engine: EmbeddedEngine, index: int, turns: int = 3) -> Sampled:
    """Turns of different lengths with observations in between; some end beyond the shortest view of keys."""
    chance = random.Random(index)
    ids = random_ids(chance.randrange(1, 100), seed=index)
    sampled: Sampled = []
    for turn in range(turns):
        sampling = SamplingParams(chance.randrange(1, 14), temperature=chance.choice([0.7, 1.0, 1.3]))
        completion = await engine.generate(ids, sampling, seed=100 * index + turn, session=f"episode {index}")
        sampled.append((completion.token_ids, completion.log_probs))
        ids = ids + completion.token_ids + random_ids(chance.randrange(0, 20), seed=1000 * index + turn)
        await asyncio.sleep(chance.random() * 0.003)
    engine.release(f"episode {index}")
    return sampled


def played_together(engine: EmbeddedEngine, indices: Sequence[int]) -> dict[int, Sampled]:
    async def run() -> list[Sampled]:
        return await asyncio.gather(*(play(engine, index) for index in indices))

    return dict(zip(indices, asyncio.run(run()), strict=True))


def played_alone(model: torch.nn.Module, index: int) -> Sampled:
    return asyncio.run(play(deterministic_engine(model), index))


def test_alone_and_among_others_have_the_same_bits(any_model):
    together = played_together(deterministic_engine(any_model), range(20))
    for index in (0, 15, 16, 19):
        assert played_alone(any_model, index) == together[index]


def test_the_order_of_arrival_changes_no_bit(llama):
    forwards = played_together(deterministic_engine(llama), range(20))
    backwards = played_together(deterministic_engine(llama), range(19, -1, -1))
    assert forwards == backwards


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_session_that_lost_its_row_and_is_computed_anew_has_the_same_bits(llama, rows):
    together = played_together(deterministic_engine(llama), range(8))
    assert played_together(deterministic_engine(llama, max_sessions=rows), range(8)) == together


def test_a_request_that_joins_late_has_the_same_bits_and_changes_none(llama):
    prompts = [random_ids(40, seed=1), random_ids(25, seed=2)]

    async def alone(prompt: list[int]) -> Completion:
        return await deterministic_engine(llama).generate(prompt, SamplingParams(30), seed=5, session="a")

    expected = [asyncio.run(alone(prompt)) for prompt in prompts]

    async def staggered() -> list[Completion]:
        engine = deterministic_engine(llama)
        forwards = Metered(llama)
        first = asyncio.create_task(engine.generate(prompts[0], SamplingParams(30), seed=5, session="a"))
        forwards.allow(12)
        await forwards.reach(13)
        second = asyncio.create_task(engine.generate(prompts[1], SamplingParams(30), seed=5, session="b"))
        await asyncio.sleep(0)
        forwards.allow()
        return await asyncio.gather(first, second)

    assert asyncio.run(staggered()) == expected


def test_a_conversation_and_its_whole_text_at_once_have_the_same_bits(llama):
    """What a turn samples depends on the prompt, not on whether the engine has met its beginning before."""
    ids = random_ids(50, seed=0)

    async def run() -> None:
        engine = deterministic_engine(llama)
        first = await engine.generate(ids, SamplingParams(20), seed=0, session="a")
        longer = [*ids, *first.token_ids, *random_ids(9, seed=1)]
        known = await engine.generate(longer, SamplingParams(12), seed=1, session="a")
        assert known == await engine.generate(longer, SamplingParams(12), seed=1, session="unheard of")

    asyncio.run(run())


def test_log_probs_are_those_of_a_plain_forward_up_to_the_end_of_the_context(any_model):
    prompt = random_ids(CONTEXT - 30, seed=0)

    async def run() -> Completion:
        return await deterministic_engine(any_model).generate(prompt, SamplingParams(50), seed=0, session="a")

    completion = asyncio.run(run())
    assert (len(completion.token_ids), completion.finish_reason) == (30, FinishReason.CONTEXT)
    ids = torch.tensor([prompt + completion.token_ids])
    with torch.no_grad():
        log_probs = torch.log_softmax(any_model(ids, use_cache=False).logits[0].float(), dim=-1)
    expected = [log_probs[index - 1, ids[0, index]].item() for index in range(len(prompt), ids.shape[1])]
    assert completion.log_probs == pytest.approx(expected, abs=2e-5)


def test_rows_that_compute_otherwise_than_others_are_not_used(llama):
    """Some machines multiply the last rows of a matrix in another way; here the third row and those after it."""
    met: list[int] = []

    def differ(module: torch.nn.Module, args: tuple, output: torch.Tensor) -> torch.Tensor:
        met.append(output.shape[0])
        row_R11 = torch.arange(output.shape[0]).view(-1, 1, 1)
        return output * (1 + 1e-6 * (row_R11 >= 2))

    llama.model.layers[0].mlp.register_forward_hook(differ)
    engine = deterministic_engine(llama)
    assert met[0] == MOST_ROWS
    met.clear()
    together = played_together(engine, range(6))
    assert set(met) == {2}
    assert played_alone(llama, 5) == together[5]


def test_new_weights_are_used_and_nothing_of_the_old_ones_is_left(llama):
    ids = random_ids(40, seed=0)

    async def run() -> None:
        engine = deterministic_engine(llama)
        await engine.generate(ids, SamplingParams(8), seed=0, session="a")
        with torch.no_grad():
            for parameter in llama.parameters():
                parameter.mul_(1.1)
        await engine.update_weights(None, 1)
        after = await engine.generate(ids, SamplingParams(8), seed=0, session="a")
        fresh = await deterministic_engine(llama).generate(ids, SamplingParams(8), seed=0, session="a")
        assert (after.token_ids, after.log_probs) == (fresh.token_ids, fresh.log_probs)
        assert after.versions == [1] * 8

    asyncio.run(run())


def test_the_trial_of_rows_leaves_a_model_in_training_mode():
    model = build("gpt2").train()
    deterministic_engine(model)
    assert model.training
