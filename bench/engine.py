"""Tokens per second of the embedded engine against transformers `generate`, on the tiny model and two threads.

    python bench/engine.py

Both sides sample the same number of tokens, without stop tokens, and run in turn: a ratio is the median over the
alternations of one run. Many turns: `generate` gets the whole history each turn, the engine keeps its keys and values.
"""

import asyncio
import statistics
import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from openmanus_rl.inference.base import SamplingParams
from openmanus_rl.inference.embedded import EmbeddedEngine

ALTERNATIONS = 5
VOCABULARY = 512
PROMPT = 64
EPISODES, TURNS, SAMPLED, OBSERVED = 64, 8, 12, 20
SINGLE_TURN_SAMPLED = 64

History = list[list[int]]


def tiny_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
    )
    return LlamaForCausalLM(config).eval()


def random_ids(rows: int, length: int) -> History:
    return torch.randint(VOCABULARY, (rows, length)).tolist()


def play_with_generate(model: LlamaForCausalLM, histories: History, turns: int, sampled: int) -> None:
    for turn in range(turns):
        ids = torch.tensor(histories)
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=sampled,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            eos_token_id=None,
            pad_token_id=0,
        )
        observations = random_ids(len(histories), OBSERVED) if turn < turns - 1 else [[]] * len(histories)
        histories = [row + observed for row, observed in zip(output.tolist(), observations, strict=True)]


async def play_with_engine(engine: EmbeddedEngine, histories: History, turns: int, sampled: int) -> None:
    async def play(index: int, ids: list[int]) -> None:
        for turn in range(turns):
            seed = index * turns + turn
            completion = await engine.generate(ids, SamplingParams(sampled), seed=seed, session=str(index))
            ids = ids + completion.token_ids + random_ids(1, OBSERVED)[0]
        engine.release(str(index))

    await asyncio.gather(*(play(index, ids) for index, ids in enumerate(histories)))


def compare(model: LlamaForCausalLM, engine: EmbeddedEngine, batch: int, turns: int, sampled: int) -> tuple[float, ...]:
    """Median tokens/s of `generate` and of the engine, and the median ratio."""
    prompts = random_ids(batch, PROMPT)
    tokens = batch * turns * sampled

    def speed(run: Callable[[], None]) -> float:
        start = time.perf_counter()
        run()
        return tokens / (time.perf_counter() - start)

    def alternation() -> tuple[float, float]:
        return (
            speed(lambda: play_with_generate(model, prompts, turns, sampled)),
            speed(lambda: asyncio.run(play_with_engine(engine, prompts, turns, sampled))),
        )

    alternation()  # warms both up
    pairs = [alternation() for _ in range(ALTERNATIONS)]
    baseline, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    return baseline, ours, statistics.median(engine_speed / other for other, engine_speed in pairs)


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    model = tiny_model()
    engine = EmbeddedEngine(model)
    print(f"{'':44} {'generate':>9} {'engine':>9} {'ratio':>7}")
    many_turns = f"{EPISODES} episodes x {TURNS} turns ({SAMPLED} sampled + {OBSERVED} observed)"
    cases = [(many_turns, EPISODES, TURNS, SAMPLED)]
    cases += [(f"one turn of {SINGLE_TURN_SAMPLED}, batch {b}", b, 1, SINGLE_TURN_SAMPLED) for b in (1, 8, 32, 64)]
    for name, batch, turns, sampled in cases:
        baseline, ours, ratio = compare(model, engine, batch, turns, sampled)
        print(f"{name:44} {baseline:9.0f} {ours:9.0f} {ratio:6.2f}x", flush=True)
    asyncio.run(engine.close())


if __name__ == "__main__":
    main()
