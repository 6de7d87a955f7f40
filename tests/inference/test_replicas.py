"""Several engines as one: sticky sessions, least load, and what happens when one of them is gone."""

import asyncio

import pytest
from metered import Metered
from small_models import build

from openmanus_rl.inference.base import Completion, EngineLost, SamplingParams
from openmanus_rl.inference.embedded import EmbeddedEngine
from openmanus_rl.inference.replicas import ReplicatedEngine

SHORT = SamplingParams(4)


class CountingEngine(EmbeddedEngine):
    """A real engine that says which sessions it was asked for, and can be killed."""

    def __init__(self) -> None:
        super().__init__(build("llama"))
        self.asked: list[str] = []
        self.dead = False

    def _check(self) -> None:
        if self.dead:
            raise EngineLost("killed by the test")

    async def generate(self, prompt_ids, sampling, *, seed, session, deadline=None) -> Completion:
        self.asked.append(session)
        self._check()
        completion = await super().generate(prompt_ids, sampling, seed=seed, session=session, deadline=deadline)
        self._check()
        return completion

    async def score(self, ids, temperature=1.0) -> list[float]:
        self._check()
        return await super().score(ids, temperature)

    def release(self, session) -> None:
        self._check()
        super().release(session)

    async def update_weights(self, source, version) -> None:
        self._check()
        await super().update_weights(source, version)

    async def close(self) -> None:
        self._check()
        await super().close()


@pytest.fixture
def parts() -> list[CountingEngine]:
    return [CountingEngine() for _ in range(3)]


@pytest.fixture
def engine(parts) -> ReplicatedEngine:
    return ReplicatedEngine(parts)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


async def turn(engine, session: str, seed: int = 0) -> Completion:
    return await engine.generate([1, 2, 3], SHORT, seed=seed, session=session)


def test_sessions_spread_evenly_and_each_stays_with_its_engine(engine, parts):
    async def scenario() -> None:
        for _ in range(3):
            await asyncio.gather(*(turn(engine, str(index)) for index in range(9)))

    run(scenario())
    assert [len(set(part.asked)) for part in parts] == [3, 3, 3]
    assert [len(part.asked) for part in parts] == [9, 9, 9]


def test_a_session_goes_where_the_fewest_are_at_that_moment(engine, parts):
    async def scenario() -> None:
        for index in range(6):
            await turn(engine, str(index))
        for session in parts[1].asked:
            engine.release(session)
        engine.release("nobody")
        for index in range(6, 8):
            await turn(engine, str(index))

    run(scenario())
    assert [len(set(part.asked)) for part in parts] == [2, 4, 2]


def test_what_is_sampled_does_not_depend_on_the_engine_it_is_on(engine):
    async def scenario() -> list[Completion]:
        return await asyncio.gather(*(turn(engine, str(index), seed=7) for index in range(3)))

    first, second, third = run(scenario())
    assert first.token_ids == second.token_ids == third.token_ids


def test_new_weights_reach_every_engine(engine, parts):
    weights = {name: tensor * 1.3 for name, tensor in build("llama").state_dict().items()}

    async def scenario() -> None:
        before = await engine.score([1, 2, 3, 4])
        await engine.update_weights(weights, 5)
        assert engine.version == 5
        scores = [await part.score([1, 2, 3, 4]) for part in engine.engines]
        assert scores[0] == scores[1] == scores[2] == await engine.score([1, 2, 3, 4])
        assert scores[0] != before
        assert (await turn(engine, "a")).versions == [5] * 4

    run(scenario())


def test_what_a_lost_engine_was_asked_for_is_asked_of_another_until_it_is_replaced(engine, parts):
    async def scenario() -> None:
        for index in range(3):
            await turn(engine, str(index))
        expected = await turn(engine, "1", seed=3)
        parts[1].dead = True
        assert (await turn(engine, "1", seed=3)).token_ids == expected.token_ids
        assert engine.lost == [1]
        assert list(engine.replicas) == ["engine 0", "engine 2"]
        asked = len(parts[1].asked)
        await asyncio.gather(*(turn(engine, f"later {index}") for index in range(4)))
        await turn(engine, "1")
        assert len(parts[1].asked) == asked
        await engine.update_weights(None, 2)
        replacement = CountingEngine()
        await replacement.update_weights(None, 2)
        engine.replace(1, replacement)
        assert engine.lost == []
        await asyncio.gather(*(turn(engine, f"last {index}") for index in range(3)))
        assert len(replacement.asked) == 3

    run(scenario())


def test_losses_are_noticed_by_whatever_is_called_first_and_stop_nothing_else(engine, parts):
    async def scenario() -> None:
        await turn(engine, "a")
        parts[0].dead = True
        engine.release("a")
        assert engine.lost == [0]
        parts[1].dead = True
        await engine.update_weights(None, 3)
        assert (engine.lost, engine.version) == ([0, 1], 3)
        assert len(await engine.score([1, 2, 3])) == 2
        parts[2].dead = True
        for call in (engine.score([1, 2]), turn(engine, "b"), engine.update_weights(None, 4)):
            with pytest.raises(EngineLost):
                await call
        assert engine.version == 3
        await engine.close()

    run(scenario())


def test_the_last_answer_of_a_replaced_engine_does_not_count_against_its_successor(engine, parts):
    async def scenario() -> None:
        slow = asyncio.create_task(turn(engine, "a"))
        await asyncio.sleep(0)
        parts[0].dead = True
        engine.replace(0, CountingEngine())
        assert len((await slow).token_ids) == 4
        assert engine.lost == []

    run(scenario())


def test_abort_reaches_the_sessions_engine(engine, parts):
    forwards = Metered(parts[0]._model)

    async def scenario() -> None:
        task = asyncio.create_task(engine.generate([1], SamplingParams(250), seed=0, session="a"))
        forwards.allow(5)
        await forwards.reach(6)
        engine.abort("a")
        engine.abort("nobody")
        forwards.allow()
        assert (await task).finish_reason == "aborted"

    run(scenario())
