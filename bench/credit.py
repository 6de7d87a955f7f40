"""What credit costs: rewards, the KL in the reward and advantages, beside the step of training they belong to.

    .venv/bin/python bench/credit.py

Trains the GRPO preset of the maze for a few steps on one thread. The episodes of its last step are then given credit
again, part by part, as the trainer does it: scored and allocated, the KL subtracted, groups without variance found,
advantages computed by each estimator. A part's time is the best of several rounds, and a share of that step's time.
Log-probs of the reference and a critic's values are a model's work, here drawn at random.
Last, GiGPO on 16,384 turns: 1,024 episodes in groups of 8.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import openmanus_rl.algorithms  # noqa: F401  (registers the estimators)
from openmanus_rl.agent.records import read_episodes
from openmanus_rl.agent.rows import episodes_to_rows
from openmanus_rl.algorithms.core_algos import apply_kl_penalty, compute_advantage, credit_batch
from openmanus_rl.algorithms.groups import groups_of_one, zero_variance_groups
from openmanus_rl.algorithms.kl_control import FixedKL
from openmanus_rl.algorithms.registry import ESTIMATORS
from openmanus_rl.protocol import DataProto
from openmanus_rl.rewards import RewardManager
from openmanus_rl.trainer.checked_config import load_checked_config
from openmanus_rl.trainer.run import train

PRESET = Path(__file__).parent.parent / "examples" / "maze_grpo.yaml"
ROUNDS = 5


def main(words: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(words)
    with TemporaryDirectory() as scratch:
        words = [
            *(f"trainer.steps={arguments.steps}", f"trainer.validate_every={arguments.steps}", "trainer.threads=1"),
            *(f"trainer.runs_dir={scratch}", "trainer.resume=never", "tracking.train_episodes_per_step=100000"),
            *arguments.overrides,
        ]
        config = load_checked_config(PRESET, words)
        run = train(config)
        step = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        episodes = read_episodes(run / "episodes" / f"train_step_{arguments.steps:06d}.jsonl")
    seconds = step["timing_s/step"] - step.get("timing_s/old_log_prob", 0.0)  # it is for the record of all episodes
    print(f"a step of {len(episodes)} episodes: {seconds:.2f} s")

    manager = RewardManager(config.algorithm, config.agent.max_episode_tokens)

    def rewards() -> None:
        for episode in episodes:
            episode.token_rewards = None
            manager(episode)

    parts = {"rewards": best(rewards)}
    rows = with_model_columns(episodes_to_rows(episodes, 0, manager))
    parts["KL in the reward"] = best(lambda: apply_kl_penalty(rows, FixedKL(0.001), "k3"))
    rows.batch["token_level_rewards"] = rows.batch["token_level_scores"].clone()
    parts["groups"] = best(lambda: useless_groups(rows))
    rows = rows[~torch.isin(rows.batch["group_index"], groups_of_one(credit_batch(rows)))]
    by_estimator = {name: best(lambda name=name: compute_advantage(rows, name)) for name in sorted(ESTIMATORS)}
    parts["advantages"] = by_estimator[config.algorithm.estimator]
    for name, part in parts.items():
        show(name, part, seconds)
    show("all of credit", sum(parts.values()), seconds)
    if "timing_s/adv" in step:  # a step whose groups were all left out has none
        show("advantages in the run itself", step["timing_s/adv"], seconds)
    for name, part in by_estimator.items():
        show(f"advantages by {name}", part, seconds)
    turns = many_turns()
    print(f"{'gigpo on 16,384 turns':38s} {1000 * best(lambda: compute_advantage(turns, 'gigpo')):8.1f} ms")


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of several rounds."""
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def show(name: str, part: float, whole: float) -> None:
    print(f"{name:38s} {1000 * part:8.1f} ms  {100 * part / whole:6.3f} %")


def useless_groups(rows: DataProto) -> None:
    credit = credit_batch(rows)
    zero_variance_groups(credit)
    groups_of_one(credit)


def with_model_columns(rows: DataProto) -> DataProto:
    """The columns that models add, at random."""
    columns, dice = rows.batch, torch.Generator().manual_seed(0)
    shape = columns["response_mask"].shape
    columns["old_log_probs"] = columns["rollout_log_probs"].clone()
    columns["ref_log_prob"] = columns["rollout_log_probs"] + 0.1 * torch.randn(shape, generator=dice)
    columns["values"] = torch.randn(shape, generator=dice)
    columns["final_values"] = torch.randn(len(rows), generator=dice)
    columns["greedy_return"] = torch.randn(len(rows), generator=dice)
    return rows


def many_turns(episodes: int = 1024, turns: int = 16, tokens: int = 8) -> DataProto:
    """Episodes of many turns in few states, with an observation of as many tokens after each turn."""
    dice = torch.Generator().manual_seed(0)
    turn = torch.arange(turns).repeat_interleave(2 * tokens).repeat(episodes, 1)
    mask = (torch.arange(turn.shape[1]) % (2 * tokens) < tokens).repeat(episodes, 1)
    states = torch.randint(0, 40, (episodes, turns), generator=dice).repeat_interleave(2 * tokens, dim=1)
    rows = torch.arange(episodes)
    return DataProto.from_dict(
        {
            "token_level_rewards": torch.rand(mask.shape, generator=dice) * mask,
            "response_mask": mask,
            "turn_index": torch.where(mask, turn, -1),
            "state_index": torch.where(mask, states, -1),
            "group_index": rows // 8,
            "episode_index": rows,
            "segment_index": torch.zeros_like(rows),
            "bootstrap": torch.zeros(episodes, dtype=torch.bool),
        }
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    return parser


if __name__ == "__main__":
    main()
