"""Multi-turn episodes through `VllmEngine` against plain offline `vllm.LLM`, on the same prompts and token counts.

    .venv/bin/python bench/vllm_rollout.py --model DIR

Both engines stay up and take turns in one run. The episodes of `VllmEngine` each go on as soon as their turn is
sampled; `vllm.LLM` gets the prompts of one turn of all episodes at once, without seeds and log-probs. At the end the
weights are changed and sent, and the engine's log-probs are compared with transformers'.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from pathlib import Path

import torch
from transformers import AutoConfig

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.inference.base import SamplingParams
from openmanus_rl.inference.factory import make_engine
from openmanus_rl.inference.vllm_engine import VllmEngine
from openmanus_rl.inference.vllm_start import engine_arguments, environment_variables, variables
from openmanus_rl.models.load import load_causal_lm

Turns = list[list[list[int]]]
"""The prompt of each episode, turn by turn."""


def main() -> None:
    options = parsed()
    torch.set_num_threads(options.threads)
    config = run_config(options)
    vocabulary = AutoConfig.from_pretrained(options.model).vocab_size
    engine = make_engine(config, options.model)
    assert isinstance(engine, VllmEngine)
    raw = raw_vllm(config, options.model)
    try:
        compare(engine, raw, options, vocabulary)
        report_sync(engine, options.model, vocabulary, options.dtype)
    finally:
        asyncio.run(engine.close())


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Hugging Face model directory")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=128, help="tokens before the first turn")
    parser.add_argument("--sampled", type=int, default=24, help="tokens sampled in a turn")
    parser.add_argument("--observed", type=int, default=32, help="tokens between two turns")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def run_config(options: argparse.Namespace) -> RunConfig:
    config = RunConfig()
    vllm = config.rollout.vllm.model_copy(update={"dtype": options.dtype, "max_sequences": options.episodes})
    rollout = config.rollout.model_copy(update={"engine": "vllm", "vllm": vllm})
    longest = options.prompt + options.turns * (options.sampled + options.observed)
    model = config.model.model_copy(update={"max_context": longest})
    return config.model_copy(update={"rollout": rollout, "model": model})


def raw_vllm(config: RunConfig, model_dir: str) -> object:
    """`vllm.LLM` with the same settings, as a script without this package would make it."""
    arguments = engine_arguments(model_dir, config, on_cpu=not torch.cuda.is_available())
    for ours in ("worker_extension_cls", "logprobs_mode"):
        del arguments[ours]
    with environment_variables(variables(config)):
        from vllm import LLM

        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
        arguments["distributed_executor_backend"] = None
        return LLM(**arguments)


def compare(engine: VllmEngine, raw: object, options: argparse.Namespace, vocabulary: int) -> None:
    sampled = options.episodes * options.turns * options.sampled
    ratios = []
    for round_number in range(options.rounds + 1):
        turns, seconds = play(engine, options, vocabulary, round_number)
        raw_seconds = play_raw(raw, turns, options.sampled)
        if round_number == 0:
            continue  # both are warm now
        ratios.append(raw_seconds / seconds)
        print(
            f"round {round_number}: {sampled} tokens, VllmEngine {sampled / seconds:.1f}/s, "
            f"vllm.LLM {sampled / raw_seconds:.1f}/s, ratio {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"VllmEngine ÷ vllm.LLM, median of {len(ratios)}: {statistics.median(ratios):.3f} (wanted: ≥ 0.9)")


def play(engine: VllmEngine, options: argparse.Namespace, vocabulary: int, seed: int) -> tuple[Turns, float]:
    """Play the episodes, each at its own pace; their prompts, and the seconds it took."""
    turns: Turns = [[[] for _ in range(options.episodes)] for _ in range(options.turns)]

    async def episode(index: int) -> None:
        chance = random.Random(f"{seed}/{index}")
        ids = chance.choices(range(vocabulary), k=options.prompt)
        for turn in range(options.turns):
            turns[turn][index] = ids
            sampling = SamplingParams(options.sampled)
            completion = await engine.generate(ids, sampling, seed=chance.getrandbits(63), session=f"{seed}/{index}")
            assert len(completion.token_ids) == options.sampled
            ids = ids + completion.token_ids + chance.choices(range(vocabulary), k=options.observed)
        engine.release(f"{seed}/{index}")

    async def all_episodes() -> None:
        await asyncio.gather(*(episode(index) for index in range(options.episodes)))

    start = time.monotonic()
    asyncio.run(all_episodes())
    return turns, time.monotonic() - start


def play_raw(raw: object, turns: Turns, sampled: int) -> float:
    from vllm import SamplingParams as VllmParams

    params = VllmParams(max_tokens=sampled, temperature=1.0, ignore_eos=True, detokenize=False)
    start = time.monotonic()
    for prompts in turns:
        outputs = raw.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        assert all(len(output.outputs[0].token_ids) == sampled for output in outputs)
    return time.monotonic() - start


def report_sync(engine: VllmEngine, model_dir: str, vocabulary: int, dtype: str) -> None:
    """Change all weights, send them, and compare log-probs on a probe, as the canary does."""
    model = load_causal_lm(Path(model_dir))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    probe = random.Random(0).choices(range(vocabulary), k=64)
    start = time.monotonic()
    asyncio.run(engine.update_weights(model.state_dict(), 1))
    seconds = time.monotonic() - start
    scores = torch.tensor(asyncio.run(engine.score(probe)))
    with torch.no_grad():
        log_probs = torch.log_softmax(model(torch.tensor([probe])).logits[0, :-1].float(), dim=-1)
    expected = log_probs.gather(1, torch.tensor(probe[1:]).unsqueeze(1)).squeeze(1)
    gap = (scores - expected).abs()
    print(
        f"sync in {seconds:.2f} s; engine ({dtype}) against transformers (float32) on {len(probe)} tokens: "
        f"mean |difference| {gap.mean():.2e}, largest {gap.max():.2e}"
    )


if __name__ == "__main__":
    main()
