"""DPO on episodes that the model itself played: a success against a failure of the same task."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.records import read_episodes, write_episodes
from openmanus_rl.algorithms.dpo import dpo_loss
from openmanus_rl.config.schema import OptimConfig, RunConfig
from openmanus_rl.errors import UserError
from openmanus_rl.models import lora
from openmanus_rl.models.load import load_causal_lm, load_tokenizer, load_whole_model, save_model
from openmanus_rl.tracking.console import RunConsole, StepReport
from openmanus_rl.tracking.metrics import MetricsLog
from openmanus_rl.tracking.picture import learning_curve
from openmanus_rl.trainer.evaluate import Evaluation
from openmanus_rl.trainer.examples import Example, episode_examples, layouts, log_prob_sums
from openmanus_rl.trainer.inputs import prepare_model, prepare_tasks
from openmanus_rl.trainer.self_play import explore, explored_tasks, measure, playing
from openmanus_rl.trainer.services import environment_servers
from openmanus_rl.trainer.sft_run import BASE, save_tuned
from openmanus_rl.trainer.side_run import MODEL, side_run
from openmanus_rl.workers.optim import Optimiser

PLAYED = "explored.jsonl"


@dataclass(frozen=True)
class Pair:
    """Two episodes of one task: one that succeeded, one that did not."""

    chosen: Episode
    rejected: Episode


def run_dpo(config: RunConfig, output: Path) -> Path:
    """Explore, pair, learn and measure; the directory of the model."""
    if config.rollout.group_size < 2:
        raise UserError(
            f"rollout.group_size={config.rollout.group_size}: dpo compares episodes of the same task.",
            "Set it to 2 or more.",
        )
    torch.set_num_threads(config.trainer.threads)
    torch.manual_seed(config.trainer.seed)
    with side_run("dpo", output, config) as run, RunConsole(1) as console:
        tasks = prepare_tasks(config, "train", config.data.train_tasks)
        validation = prepare_tasks(config, "validation", config.data.validation_tasks)
        base, played = run.path / BASE, run.path / PLAYED
        if not base.exists():
            source = prepare_model(config, tasks, console.note)
            save_model(load_whole_model(source), load_tokenizer(source), base)
        log = MetricsLog(run.metrics)
        log.truncate_after(-1)
        with environment_servers(config, run.env_logs, console.note) as services, services.blamed_for_failures():
            with playing(config, base, services.urls) as agent:
                before = measure(agent, validation, config)
                console.validation(0, before.success)
                if not played.exists():
                    explored = explored_tasks(tasks, config.trainer.seed, config.dpo.tasks, 1)
                    write_episodes(played, explore(agent, explored, config, 1))
            log.append(0, before.metrics())
            pairs = pair_up(read_episodes(played), config.dpo.pairs_per_task)
            console.note(f"{len(pairs)} pairs of a success and a failure of the same task")
            model, steps, last = _learn(config, base, pairs, console, log)
            save_tuned(model, base, run.path / MODEL)
            with playing(config, run.path / MODEL, services.urls) as agent:
                after: Evaluation = measure(agent, validation, config)
        console.validation(steps, after.success)
        log.append(steps, last | after.metrics())
        log.close()
        learning_curve(run.metrics, run.picture, f"{config.world_names}, DPO")
        run.write_summary(
            {
                "env": config.world_names,
                "algorithm": "dpo",
                "pairs": len(pairs),
                "steps": steps,
                "success_before": before.success.to_dict(),
                "success_after": after.success.to_dict(),
                "seed": config.trainer.seed,
                "model": str(run.path / MODEL),
            }
        )
        console.note(f"model: {run.path / MODEL}")
    return output / MODEL


def pair_up(episodes: Sequence[Episode], per_task: int) -> list[Pair]:
    """Successes of a task with failures of it, at most `per_task` of each task, as many different ones as there are."""
    by_task: dict[tuple[str, str], tuple[list[Episode], list[Episode]]] = defaultdict(lambda: ([], []))
    for episode in episodes:
        by_task[episode.task.env, episode.task.item_id][not episode.success].append(episode)
    pairs = [
        Pair(chosen, rejected)
        for chosen_ones, rejected_ones in by_task.values()
        for chosen, rejected in islice(_mixed(chosen_ones, rejected_ones), per_task)
    ]
    if not pairs:
        raise UserError(
            f"no task has both a success and a failure among {len(episodes)} episodes: there is nothing to compare.",
            "Raise rollout.group_size or dpo.tasks, or choose tasks that sometimes succeed.",
        )
    return pairs


def _mixed(chosen: Sequence[Episode], rejected: Sequence[Episode]) -> Iterator[tuple[Episode, Episode]]:
    """All pairs; no episode is taken again before each of its kind has been taken."""
    longest = max(len(chosen), len(rejected))
    for shift in range(min(len(chosen), len(rejected))):
        for place in range(longest):
            if len(chosen) >= len(rejected):
                yield chosen[place], rejected[(place + shift) % len(rejected)]
            else:
                yield chosen[(place + shift) % len(chosen)], rejected[place]


class Preferences:
    """A model that learns from pairs, in place; the reference is what it was at the start."""

    def __init__(self, model: PreTrainedModel, pairs: Sequence[Pair], config: RunConfig) -> None:
        self.model = model.eval()  # nothing is dropped: policy and reference differ by their weights alone
        self.beta, self.chosen_weight = config.dpo.beta, config.dpo.chosen_weight
        self.micro_batch_tokens = config.actor.micro_batch_tokens
        self.packed = model.device.type != "cpu"
        self.pairs = [
            [episode_examples(episode, learn_invalid=True) for episode in (pair.chosen, pair.rejected)]
            for pair in pairs
        ]
        with torch.no_grad():
            self.reference_P2 = torch.cat([self._log_probs([pair]) for pair in self.pairs])

    def accumulate_gradient(self, chosen: Sequence[int]) -> dict[str, float]:
        """Add the gradient of the mean loss over these pairs; what it was.

        The loss is DPO's, and beside it the negative log-likelihood of a token of the success (Pang et al. 2024).
        A pair's loss couples its episodes, so it is first told how each log-prob counts; then every pass adds its part.
        """
        pairs = [self.pairs[index] for index in chosen]
        with torch.no_grad():
            log_probs_P2 = self._log_probs(pairs)
        log_probs_P2.requires_grad_(True)
        reference_P2 = self.reference_P2[list(chosen)]
        loss_P, margin_P = dpo_loss(
            log_probs_P2[:, 0], log_probs_P2[:, 1], reference_P2[:, 0], reference_P2[:, 1], self.beta
        )
        tokens_P = torch.tensor([sum(example.learnt for example in chosen) for chosen, _ in pairs])
        nll_P = -log_probs_P2[:, 0] / tokens_P
        (weight_P2,) = torch.autograd.grad((loss_P + self.chosen_weight * nll_P).mean(), log_probs_P2)
        for part_E in self._passes(pairs):
            (part_E * self._of_examples(pairs, weight_P2)).sum().backward()
        return {
            "train/loss": float(loss_P.detach().mean()),
            "dpo/chosen_nll": float(nll_P.detach().mean()),
            "dpo/margin": float(margin_P.detach().mean()),
            "dpo/accuracy": float((margin_P > 0).double().mean()),
        }

    def _log_probs(self, pairs: Sequence[list[list[Example]]]) -> Tensor:
        """P × 2: log-probs of the chosen and the rejected episode of each pair."""
        per_example_E = sum(self._passes(pairs), torch.zeros(()))
        owner_E = torch.tensor([number for number, examples in enumerate(_episodes(pairs)) for _ in examples])
        return torch.zeros(2 * len(pairs)).index_add(0, owner_E, per_example_E).view(-1, 2)

    def _passes(self, pairs: Sequence[list[list[Example]]]) -> Iterator[Tensor]:
        """Log-probs of all examples, each pass with its own and 0 for the others."""
        examples = [example for examples in _episodes(pairs) for example in examples]
        for layout in layouts(examples, self.micro_batch_tokens, self.packed):
            yield log_prob_sums(self.model, layout, len(examples))

    def _of_examples(self, pairs: Sequence[list[list[Example]]], weight_P2: Tensor) -> Tensor:
        weights = weight_P2.flatten().tolist()
        return torch.tensor([weights[number] for number, examples in enumerate(_episodes(pairs)) for _ in examples])


def _episodes(pairs: Sequence[list[list[Example]]]) -> list[list[Example]]:
    return [examples for pair in pairs for examples in pair]


def _learn(
    config: RunConfig, base: Path, pairs: Sequence[Pair], console: RunConsole, log: MetricsLog
) -> tuple[PreTrainedModel, int, dict[str, float]]:
    """The model after the last step, which step that is, and its metrics, which are not yet in the log."""
    dpo = config.dpo
    model = load_causal_lm(base)
    if config.model.lora.rank:
        lora.add_adapters(model, config.model.lora, config.trainer.seed)
    learner = Preferences(model, pairs, config)
    batches = [batch for epoch in range(dpo.epochs) for batch in _batches(len(pairs), config, epoch)]
    optimiser = Optimiser(model, OptimConfig(lr=dpo.lr, final_lr_ratio=0.1), total_steps=len(batches))
    console.begin_training(total_steps=len(batches))
    metrics: dict[str, float] = {}
    for step, batch in enumerate(batches, start=1):
        metrics = learner.accumulate_gradient(batch)
        metrics |= {"train/grad_norm": optimiser.step(), "train/lr": optimiser.lr}
        console.step(StepReport(step, loss=metrics["train/loss"]))
        if step < len(batches):
            log.append(step, metrics)
    console.end_training()
    return model, len(batches), metrics


def _batches(count: int, config: RunConfig, epoch: int) -> list[list[int]]:
    order = list(range(count))
    random.Random(f"{config.trainer.seed}/{epoch}").shuffle(order)
    size = config.dpo.batch_pairs
    return [order[start : start + size] for start in range(0, count, size)]
