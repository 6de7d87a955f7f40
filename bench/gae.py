"""GAE without a loop over time against the recursion over columns: 256 × 4096 tokens of many turns, one thread.

    .venv/bin/python bench/gae.py

Both see the same mask: turns of 20 to 120 sampled tokens with observations of 10 to 80 between them, and both get and
give float32. Seconds are CPU seconds of the one thread, the best of several alternating rounds, so that other work on
the machine counts little. The error is the largest of any token against the recursion in float64. Every round begins
with a batch of which nothing has been computed but what its checks need; making it, checks included, is shown apart.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from openmanus_rl.algorithms.credit import CreditBatch
from openmanus_rl.algorithms.gae import GaeOptions, gae

ROWS, WIDTH, ROUNDS = 256, 4096, 5
OPTIONS = GaeOptions(gamma=0.99, lam=0.95, whiten=False)
Result = TypeVar("Result")


def main() -> None:
    torch.set_num_threads(1)
    batch = multi_turn_batch()
    exact = column_loop(batch, torch.float64)
    loop_seconds, check_seconds, gae_seconds = [], [], []
    for _ in range(ROUNDS):
        by_loop = timed(partial(column_loop, batch), loop_seconds)
        checked = timed(partial(fresh, batch), check_seconds)
        by_gae = timed(partial(gae, checked, OPTIONS), gae_seconds).advantages_RT
    loop, checks, ours = min(loop_seconds), min(check_seconds), min(gae_seconds)
    print(f"loop over {WIDTH} columns  {loop:6.3f} s   error {error(by_loop, exact):.1e}")
    print(f"gae                     {ours:6.3f} s   error {error(by_gae, exact):.1e}   {loop / ours:.1f}x")
    print(f"gae and the batch       {ours + checks:6.3f} s   {loop / (ours + checks):.1f}x")


def error(advantages: Tensor, exact: Tensor) -> float:
    return (advantages.double() - exact).abs().max().item()


def timed(work: Callable[[], Result], seconds: list[float]) -> Result:
    began = time.thread_time()
    result = work()
    seconds.append(time.thread_time() - began)
    return result


def multi_turn_batch() -> CreditBatch:
    """Rows as the agent makes them, each an episode of its own."""
    dice = random.Random(0)
    turn_index = torch.full((ROWS, WIDTH), -1)
    for row in turn_index:
        start, turn = 0, 0
        while start < WIDTH:
            end = start + dice.randint(20, 120)
            row[start:end] = turn
            start, turn = end + dice.randint(10, 80), turn + 1
    mask = turn_index >= 0
    numbers = torch.Generator().manual_seed(0)
    rewards = (torch.rand(ROWS, WIDTH, generator=numbers) < 0.02).float() * mask
    rows = torch.arange(ROWS)
    return CreditBatch(
        token_level_rewards_RT=rewards,
        response_mask_RT=mask,
        turn_index_RT=turn_index,
        group_index_R=rows // 4,
        episode_index_R=rows,
        segment_index_R=torch.zeros_like(rows),
        bootstrap_R=rows % 2 == 0,
        values_RT=torch.randn(ROWS, WIDTH, generator=numbers),
        final_values_R=torch.randn(ROWS, generator=numbers),
    )


def fresh(batch: CreditBatch) -> CreditBatch:
    """The same columns without what an earlier round has computed of them; the checks are part of the time."""
    names = CreditBatch.__dataclass_fields__
    return CreditBatch(**{name: getattr(batch, name) for name in names})


def column_loop(batch: CreditBatch, dtype: torch.dtype = torch.float32) -> Tensor:
    """The recursion from the last column to the first, stepping over what was not sampled."""
    rewards, values = batch.token_level_rewards_RT.to(dtype), batch.values_RT.to(dtype)
    mask = batch.response_mask_RT
    later = torch.zeros(ROWS, dtype=dtype)
    next_values = batch.final_values_R.to(dtype) * batch.bootstrap_R
    advantages = torch.zeros_like(rewards)
    for column in reversed(range(WIDTH)):
        sampled = mask[:, column]
        surprise = rewards[:, column] + OPTIONS.gamma * next_values - values[:, column]
        later = torch.where(sampled, surprise + OPTIONS.gamma * OPTIONS.lam * later, later)
        next_values = torch.where(sampled, values[:, column], next_values)
        advantages[:, column] = later * sampled
    return advantages


if __name__ == "__main__":
    main()
