"""AgentEvol (Xi et al. 2024): explore, keep what succeeds, fine-tune on it and the demonstrations, again.

One round is rejection sampling. Every round begins from the base model, not from the last one: what was learnt is in
the episodes that were kept, and mistakes of a round do not add up.
"""

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from openmanus_rl.agent.episode import Episode
from openmanus_rl.agent.records import read_episodes, write_episodes
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.envs.base import Task
from openmanus_rl.errors import UserError
from openmanus_rl.files import write_json, write_text, written_aside
from openmanus_rl.models.load import load_tokenizer
from openmanus_rl.tracking.console import RunConsole
from openmanus_rl.tracking.picture import learning_curve
from openmanus_rl.tracking.run_directory import RunDirectory
from openmanus_rl.tracking.stats import Interval
from openmanus_rl.trainer.agents import make_renderer
from openmanus_rl.trainer.examples import Example, conversation_example, episode_examples
from openmanus_rl.trainer.inputs import prepare_base, prepare_demonstrations, prepare_tasks
from openmanus_rl.trainer.metrics import episode_metrics
from openmanus_rl.trainer.self_play import explore, explored_tasks, measure, playing
from openmanus_rl.trainer.services import environment_servers
from openmanus_rl.trainer.sft import fitting
from openmanus_rl.trainer.sft_run import BASE, DEMONSTRATIONS, fine_tune_in
from openmanus_rl.trainer.side_run import MODEL, side_run

KEPT, MEASURED = "kept.jsonl", "metrics.json"


def run_evolve(config: RunConfig, output: Path) -> Path:
    """All rounds, each written whole or not at all; the directory of the last round's model."""
    torch.set_num_threads(config.trainer.threads)
    torch.manual_seed(config.trainer.seed)
    with side_run("evolve", output, config) as run, RunConsole(config.evolve.rounds) as console:
        with environment_servers(config, run.env_logs, console.note) as services, services.blamed_for_failures():
            evolution = Evolution(config, run, services.urls, console)
            for number in range(config.evolve.rounds + 1):
                evolution.play_round(number)
        evolution.finish()
    return output / MODEL


class Evolution:
    """The rounds of one run. Round 0 is the base fine-tuned on the demonstrations alone, if there are any."""

    def __init__(
        self, config: RunConfig, run: RunDirectory, env_urls: Mapping[str, list[str]], console: RunConsole
    ) -> None:
        self.config, self.run, self.env_urls, self.console = config, run, env_urls, console
        needs_demonstrations = config.warm_starts or config.model.path == "tiny"
        demonstrations = (
            prepare_demonstrations(config, run.path / DEMONSTRATIONS, console.note) if needs_demonstrations else []
        )
        self.base = run.path / BASE
        prepare_base(config, demonstrations, self.base, console.note)
        renderer = make_renderer(config, load_tokenizer(self.base))
        self.demonstrated = (
            [(each, conversation_example(each, renderer)) for each in demonstrations] if config.warm_starts else []
        )
        self.train = prepare_tasks(config, "train", config.data.train_tasks)
        self.validation = prepare_tasks(config, "validation", config.data.validation_tasks)
        self.measured: list[dict[str, float]] = []

    def play_round(self, number: int) -> None:
        """Make round `number`, unless it is there, and say how good it is."""
        home = self._home(number)
        if not home.exists():
            with written_aside(home) as aside:
                aside.mkdir(parents=True)
                metrics = {} if number == 0 else self._gather(number, aside)
                self._learn(number, aside)
                model = aside / MODEL
                with playing(self.config, model if model.exists() else self.base, self.env_urls) as agent:
                    metrics |= measure(agent, self.validation, self.config).metrics()
                write_json(aside / MEASURED, {"time": time.time(), **metrics})
        self.measured.append(json.loads((home / MEASURED).read_text()))
        lines = [json.dumps({"step": step, **metrics}) + "\n" for step, metrics in enumerate(self.measured)]
        write_text(self.run.metrics, "".join(lines))
        self.console.validation(number, success(self.measured[number]))

    def finish(self) -> None:
        """The last round's model, a picture and the summary."""
        with written_aside(self.run.path / MODEL) as aside:
            shutil.copytree(self._model(self.config.evolve.rounds), aside)
        learning_curve(self.run.metrics, self.run.picture, f"{self.config.world_names}, AgentEvol (a step is a round)")
        self.run.write_summary(
            {
                "env": self.config.world_names,
                "algorithm": "evolve",
                "rounds": self.config.evolve.rounds,
                "success": [success(metrics).to_dict() for metrics in self.measured],
                "kept": [int(metrics.get("evolve/kept", 0)) for metrics in self.measured],
                "seed": self.config.trainer.seed,
                "model": str(self.run.path / MODEL),
            }
        )
        self.console.note(f"model: {self.run.path / MODEL}")

    def _gather(self, number: int, home: Path) -> dict[str, float]:
        """Explore with the last round's model, and keep the best of what succeeded so far."""
        config = self.config
        tasks: list[Task] = explored_tasks(self.train, config.trainer.seed, config.evolve.tasks, number)
        with playing(config, self._model(number - 1), self.env_urls) as agent:
            episodes = explore(agent, tasks, config, number)
        earlier = read_episodes(self._home(number - 1) / KEPT) if number > 1 else []
        kept = keep_best([*earlier, *episodes], config.evolve.keep_per_task)
        if not kept:
            raise UserError(
                f"not one of {len(episodes)} episodes succeeded in round {number}: there is nothing to learn from.",
                "Start from a better model, choose easier tasks, or raise evolve.tasks or rollout.group_size.",
            )
        write_episodes(home / KEPT, kept)
        succeeded = sum(episode.success for episode in episodes)
        self.console.note(f"round {number}: {succeeded} of {len(episodes)} episodes succeeded; {len(kept)} kept so far")
        return {**episode_metrics(episodes), "evolve/kept": len(kept)}

    def _learn(self, number: int, home: Path) -> None:
        """Round 0 learns from all demonstrations, as a warm start does; the others from none that is known to fail."""
        examples: list[Example] = [
            example for each, example in self.demonstrated if number == 0 or each.success is not False
        ]
        if number:
            examples += [example for episode in read_episodes(home / KEPT) for example in episode_examples(episode)]
        if examples:
            kept = fitting(examples, self.config.model.max_context, self.console.note)
            fine_tune_in(home, self.config, self.base, kept, self.console)

    def _home(self, number: int) -> Path:
        return self.run.path / "rounds" / str(number)

    def _model(self, number: int) -> Path:
        model = self._home(number) / MODEL
        return model if model.exists() else self.base


def keep_best(episodes: Sequence[Episode], per_task: int) -> list[Episode]:
    """Of each task the `per_task` best that succeeded: by score, then by fewest turns; alike ones count once."""
    by_task: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    seen: set[tuple[str, ...]] = set()
    for episode in episodes:
        said = (episode.task.env, episode.task.item_id, *(turn.text for turn in episode.turns))
        if episode.success and said not in seen:
            seen.add(said)
            by_task[said[0], said[1]].append(episode)
    best = [sorted(of_task, key=lambda each: (-each.scores["score"], len(each.turns))) for of_task in by_task.values()]
    return [episode for of_task in best for episode in of_task[:per_task]]


def success(metrics: dict[str, float]) -> Interval:
    """Held-out success in a round's metrics."""
    rate, low, high, n = (metrics[f"val/success/{part}"] for part in ("rate", "low", "high", "n"))
    return Interval(rate, low, high, int(n))
