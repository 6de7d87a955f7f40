"""Rollout against its limits: lock-step, the driver's own cost, prefix reuse, failures, memory.

    python bench/rollout.py [latency overhead prefix faults memory]

Each prints what it measured beside what is wanted. Worlds are simulated (bench/rollout_parts.py); the engine of
`prefix` is the embedded one on a tiny random model, that of `latency` takes a fixed time for a turn, those of the
others answer at once.
"""

import argparse
import ctypes
import gc
import os
import time
from collections import Counter

import torch
from rollout_parts import (
    FaultyWorld,
    LockStepWorld,
    PacedEngine,
    SlowWorld,
    World,
    latency,
    make_agent,
    requests,
    tiny_model,
)

from openmanus_rl.agent.episode import Episode
from openmanus_rl.inference.embedded import EmbeddedEngine

SIGMA = 1.0
"""Of the log-normal latency: of 256 steps the slowest takes about ten times the mean."""


def measure_latency(episodes: int = 256, turns: int = 24, turn_seconds: float = 0.12) -> None:
    """Episodes with slow worlds, against the same in lock-step and against what nothing could beat."""
    _, renderer = tiny_model(32)
    engine = PacedEngine(renderer.answer_ids("Action: open"), turn_seconds)

    def wall(world: World) -> float:
        agent = make_agent(engine, renderer, world, turns=turns, tokens=32)
        began = time.monotonic()
        agent.play(requests(episodes))
        seconds = time.monotonic() - began
        agent.close()
        return seconds

    waits = [sum(latency(f"room_{i}", t, turn_seconds, SIGMA) for t in range(1, turns + 1)) for i in range(episodes)]
    engine_bound = turns * turn_seconds
    slowest = max(waits) + engine_bound
    free, locked = wall(SlowWorld(turn_seconds, SIGMA)), wall(LockStepWorld(turn_seconds, SIGMA, episodes))
    print(f"a turn takes {turn_seconds} s, the mean latency of a step too; the slowest episode alone {slowest:.2f} s")
    print(f"rollout {free:.2f} s, lock-step {locked:.2f} s: {locked / free:.2f} times faster (wanted: 3)")
    print(f"engine-bound {engine_bound:.2f} s: {free / slowest:.2f} of the larger bound (wanted: at most 1.25)")


def measure_overhead(episodes: int = 4096, turns: int = 8) -> None:
    """CPU of the driver per turn where engine and world cost nothing."""
    _, renderer = tiny_model(32)
    engine = PacedEngine(renderer.answer_ids("Thought: go\nAction: open the door and look"))
    agent = make_agent(engine, renderer, World(), turns=turns, tokens=32)
    agent.play(requests(256))  # warm
    gc.collect()
    began = time.process_time()
    played = agent.play(requests(episodes))
    seconds = time.process_time() - began
    agent.close()
    total = sum(len(episode.turns) for episode in played)
    each = 1000 * seconds / total
    print(f"{episodes} episodes at once, {total} turns: {each:.3f} ms of CPU a turn (wanted: at most 0.3)")


def measure_prefix(episodes: int = 64, turns: int = 8, tokens: int = 12) -> None:
    """Tokens that the engine computes of prompts and observations, against those that were appended."""
    model, renderer = tiny_model()
    computed = 0

    def count(_module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        nonlocal computed
        computed += int(kwargs["input_ids"].numel())

    model.register_forward_pre_hook(count, with_kwargs=True)
    engine = EmbeddedEngine(model, max_sessions=episodes, max_context=1024)
    agent = make_agent(engine, renderer, World(), turns=turns, tokens=tokens)
    played = agent.play(requests(episodes))
    agent.run(engine.close())
    agent.close()
    sampled = sum(episode.sampled_tokens for episode in played)
    seen = sum(segment.turns[-1].start for episode in played for segment in episode.segments)
    appended = seen - sum(len(turn.token_ids) for episode in played for turn in episode.turns[:-1])
    again = sum(start for episode in played for start in (turn.start for turn in episode.turns))
    prefill = computed - (sampled - sum(len(episode.turns) for episode in played))
    print(
        f"{appended} tokens appended, {prefill} computed for them: {prefill / appended:.3f} (wanted: at most 1.1); "
        f"without reuse {again / appended:.1f}"
    )


def measure_faults(episodes: int = 512, turns: int = 8) -> None:
    """2 % of the world's calls fail and 0.3 % hang: the same returns, in time, each failure counted."""
    _, renderer = tiny_model(32)
    engine = PacedEngine(renderer.answer_ids("Action: open"))

    def played(failing: float, hanging: float) -> tuple[list[Episode], float, FaultyWorld]:
        world = FaultyWorld(failing, hanging)
        limits = {"episode_timeout": 5.0, "retries": 2, "failure_budget": 0.5}
        agent = make_agent(engine, renderer, world, turns=turns, tokens=32, **limits)
        began = time.monotonic()
        result = agent.play(requests(episodes))
        seconds = time.monotonic() - began
        agent.close()
        return result, seconds, world

    (calm, calm_seconds, _), (shaken, seconds, world) = played(0.0, 0.0), played(0.02, 0.003)
    samples = [episode for episode in shaken if episode.stop_reason.is_sample]
    causes = Counter(str(reason) for episode in shaken for reason in episode.failed_tries)
    lost = Counter(str(episode.stop_reason) for episode in shaken if not episode.stop_reason.is_sample)

    def interval(values: list[float]) -> str:
        returns = torch.tensor(values, dtype=torch.float64)
        return f"{returns.mean():.3f} ± {1.96 * returns.std() / len(returns) ** 0.5:.3f}"

    print(f"without faults: return {interval([e.episode_return for e in calm])} in {calm_seconds:.1f} s")
    found = interval([e.episode_return for e in samples])
    print(f"with faults: return {found} in {seconds:.1f} s (wanted: at most 15)")
    print(f"met {world.met}; played again by cause {dict(causes)}; given up {dict(lost)}")
    print(f"every failure counted: {sum(causes.values()) + sum(lost.values()) == sum(world.met.values())}")


def measure_memory(episodes: int = 10_000, turns: int = 12) -> None:
    """What 10,000 finished episodes of about 500 tokens weigh on the driver, and what is left when they are dropped."""
    _, renderer = tiny_model(32)
    answer = renderer.answer_ids("Thought: go\nAction: open the door and look around in the room with a lamp")
    agent = make_agent(PacedEngine(answer), renderer, World(), turns=turns, tokens=64)
    agent.play(requests(256))
    before = resident()
    played = agent.play(requests(episodes))
    weight = resident() - before
    tokens = sum(len(segment.ids) for episode in played for segment in episode.segments) / episodes
    sampled = sum(episode.sampled_tokens for episode in played) / episodes
    print(
        f"{episodes} episodes of {tokens:.0f} tokens, {sampled:.0f} of them sampled: {weight / 1e6:.0f} MB "
        "(wanted: at most 250)"
    )
    del played
    left = resident() - before
    alive = sum(type(thing) is Episode for thing in gc.get_objects())
    agent.close()
    print(f"dropped, {alive} episodes are left, and {left / 1e6:.0f} MB that Python keeps for the next ones")


def resident() -> int:
    """Bytes in memory, without what the allocator merely keeps."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


MEASURES = {
    "latency": measure_latency,
    "overhead": measure_overhead,
    "prefix": measure_prefix,
    "faults": measure_faults,
    "memory": measure_memory,
}

if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"{', '.join(MEASURES)}; all if none is named")
    chosen = parser.parse_args().measures
    unknown = set(chosen) - set(MEASURES)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(MEASURES)}")
    for name in chosen or MEASURES:
        print(f"-- {name}")
        MEASURES[name]()
