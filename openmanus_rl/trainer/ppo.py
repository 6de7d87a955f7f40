"""`RayPPOTrainer`: play episodes, give credit, update, validate, checkpoint, and again.

It composes the rooms and knows no algorithm by name: what an estimator requires is asked of the registry.
"""

import resource
import time
from collections.abc import Mapping
from pathlib import Path

from openmanus_rl.agent.episode import Episode, StopReason
from openmanus_rl.agent.openmanus import OpenManusAgent
from openmanus_rl.agent.records import RecordDetails, read_episodes
from openmanus_rl.agent.rows import assert_only_sampled_tokens_train
from openmanus_rl.agent.strategies import find_strategy
from openmanus_rl.algorithms.registry import find_estimator
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.data.sampler import Sampler
from openmanus_rl.envs.base import stable_hash
from openmanus_rl.errors import UserError
from openmanus_rl.inference.base import InferenceEngine
from openmanus_rl.models.load import load_tokenizer
from openmanus_rl.protocol import DataProto
from openmanus_rl.rewards import RewardManager
from openmanus_rl.tracking.boards import open_logs
from openmanus_rl.tracking.checkpoints import Checkpoint, CheckpointStore
from openmanus_rl.tracking.console import RunConsole, Stage, StepReport
from openmanus_rl.tracking.episodes import EpisodeLog
from openmanus_rl.tracking.run_directory import RunDirectory
from openmanus_rl.tracking.stats import Interval
from openmanus_rl.trainer.agents import make_agent
from openmanus_rl.trainer.ahead import Rollout, StepsAhead
from openmanus_rl.trainer.canary import check_drift, probe
from openmanus_rl.trainer.credit import assign_credit, kl_controller
from openmanus_rl.trainer.crew import Crew
from openmanus_rl.trainer.evaluate import Evaluation, evaluate
from openmanus_rl.trainer.guard import Collapse, Guard
from openmanus_rl.trainer.inputs import Inputs, make_sampler
from openmanus_rl.trainer.metrics import episode_metrics, staleness_metrics
from openmanus_rl.trainer.postmortem import TASKS as POSTMORTEM_TASKS
from openmanus_rl.trainer.postmortem import write_postmortem
from openmanus_rl.trainer.roles import Roles
from openmanus_rl.trainer.rollout import play_step
from openmanus_rl.trainer.state import Progress, read_state, stage_state
from openmanus_rl.trainer.stopping import StopRequest
from openmanus_rl.trainer.timings import Timings
from openmanus_rl.trainer.token_credit import credit_of_tokens, rows_of_first

NOTHING = -1
"""The step of a run that has not even been measured before training."""


class RayPPOTrainer:
    """One run in one run directory, against environment servers that are up."""

    crew: Crew
    roles: Roles
    engine: InferenceEngine
    agent: OpenManusAgent
    episode_log: EpisodeLog
    steps_ahead: StepsAhead | None
    """Plays while this process trains, with `rollout.ahead`."""
    probe: list[int]
    """Tokens on which engine and trainer must agree after each change of the weights."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        inputs: Inputs,
        env_urls: Mapping[str, list[str]],
        console: RunConsole,
        began: float | None = None,
    ) -> None:
        """`began`, in `time.monotonic()` seconds, is when the run started to prepare; by default now."""
        self.config = config
        self.run = run
        self.inputs = inputs
        self.env_urls = env_urls
        self.console = console
        self.requires = find_estimator(config.algorithm.estimator).requires
        self.sampler = make_sampler(inputs.train, config)
        self.kl_control = kl_controller(config.algorithm.kl)
        self.guard = Guard(config.guard)
        self.checkpoints = CheckpointStore(run.checkpoints, config.trainer.keep_checkpoints, run.run_id)
        self.rewards = RewardManager(config.algorithm, config.agent.max_episode_tokens)
        self.progress = Progress(tasks=stable_hash("\n".join(task.item_id for task in inputs.train)))
        self.stop = StopRequest(console.note)
        self._saved_step: int | None = None
        self._session_began = time.monotonic() if began is None else began

    def init_workers(self) -> None:
        """Make the worker groups that the algorithm needs, the engine, and the agent that plays with it."""
        tokenizer = load_tokenizer(self.inputs.model_dir)
        self.crew = Crew(self.config, self.inputs.model_dir, self.requires, self.console.note)
        self.roles, self.engine = self.crew.roles, self.crew.engine

        def new_agent() -> OpenManusAgent:
            return make_agent(self.config, self.engine, tokenizer, self.env_urls, self.rewards)

        self.agent = new_agent()
        ahead, steps = self.config.rollout.ahead, self.config.trainer.steps
        self.steps_ahead = StepsAhead(new_agent, self._play_with, ahead, steps) if ahead else None
        details = RecordDetails(self.rewards, self.agent.player.renderer.pieces)
        self.episode_log = EpisodeLog(self.run.episodes, details)
        self.probe = probe(self.inputs.validation[0], self.agent.player.renderer.encode_content, len(tokenizer))

    def resume(self) -> None:
        """Go on from the newest checkpoint that can be used; without one, from the start."""
        checkpoint = self.checkpoints.latest()
        if checkpoint is None:
            self.run.rewind_events(0)
            return
        for reason in checkpoint.skipped:
            self.console.note(f"a checkpoint was passed over: {reason}")
        progress = self._read(checkpoint)
        if progress.tasks != self.progress.tasks:
            raise UserError(
                f"the training tasks in {self.config.data.dir} are not those that {self.run.path} was trained on.",
                "Resume with the data of the saved run, or start a new run (trainer.resume=never).",
            )
        self.progress = progress
        if self.finished and progress.measured_at != progress.step:
            raise UserError(
                f"{self.run.path} stands after step {progress.step}, {progress.train_seconds:.0f} s: beyond the end.",
                "Raise trainer.steps, and trainer.max_seconds if it is set; or keep the run as it is.",
            )
        self.run.rewind_events(progress.events)
        self._saved_step = progress.step
        self.console.note(f"resumed after step {self.progress.step} from {checkpoint.path}")

    def fit(self) -> tuple[Interval, Interval]:
        """Train to the last step, or until stopped; held-out success before and after."""
        logs = open_logs(self.run, self.config, NOTHING if self._saved_step is None else self._saved_step)
        self._sync_weights()
        if not self.progress.success_before:
            before = self._validate()
            self.progress.success_before = before.success.to_dict()
            for log in logs:
                log.append(0, before.metrics())
            self._save_checkpoint()
        self.console.stage(Stage.EPISODES, "update and checkpoint follow, again and again")
        self.console.begin_training(self.progress.step)
        with self.stop.by_signal(self.agent.interrupt):
            while not self.finished and not self.stop.made:
                timings = Timings()
                step_metrics = self.train_step(timings)
                if self._is_due(self.config.trainer.validate_every):
                    with timings.part("testing"):
                        step_metrics |= self._validate().metrics()
                for log in logs:
                    log.append(self.progress.step, step_metrics | timings.metrics())
                check_drift(step_metrics, self.config.trainer.max_logprob_gap)
                self.checkpoints.check()
                collapse = self.guard.observe(self.progress.step, step_metrics)
                if collapse is not None and self._goes_back(collapse):
                    for log in logs:
                        log.close()
                    logs = open_logs(self.run, self.config, self.progress.step)
                elif self._is_due(self.config.trainer.save_every) and self._may_come_back():
                    self._save_checkpoint()
            if self._saved_step != self.progress.step:  # stopped between two checkpoints
                self._save_checkpoint()
            self.checkpoints.wait()
        self.console.end_training()
        for log in logs:
            log.close()
        return Interval(**self.progress.success_before), Interval(**self.progress.success_after)

    @property
    def finished(self) -> bool:
        """Whether the last step is done, by count or by time."""
        limit = self.config.trainer.max_seconds
        out_of_time = limit is not None and self.progress.train_seconds >= limit
        return out_of_time or self.progress.step >= self.config.trainer.steps

    def close(self) -> None:
        """Wait for the checkpoint under way, and end the engine, the agent's connections and the workers' processes."""
        if self.steps_ahead is not None:
            self.steps_ahead.stop()
        try:
            self.checkpoints.close()
        finally:
            self.agent.run(self.engine.close())
            self.agent.close()
            self.crew.close()

    def train_step(self, timings: Timings) -> dict[str, float]:
        """One turn of the loop: episodes, credit, update, weights."""
        config, step = self.config, self.progress.step + 1
        with timings.part("step"):
            batch, episodes, metrics = self._play(step, timings)
            batch, credit_metrics = assign_credit(
                batch, self.roles, config.algorithm, config.actor, self.kl_control, timings
            )
            recorded = self._rows_to_record(batch, episodes, timings)
            metrics |= credit_metrics | self._update(batch, step, timings)
            self.progress.step = step
            with timings.part("update_weights"):
                metrics |= self._sync_weights()
        timings.seconds["other"] = timings.rest_of("step", *(["gen"] if self.steps_ahead is not None else []))
        tokens = sum(episode.sampled_tokens for episode in episodes)
        self.progress.episodes += len(episodes)
        self.progress.sampled_tokens += tokens
        self.progress.train_seconds += timings.seconds["step"]
        self._note_failures(episodes)
        metrics |= episode_metrics(episodes)
        lengths = [len(segment.ids) for episode in episodes for segment in episode.segments]
        metrics |= {
            "training/epoch": self.sampler.epoch,
            "training/seconds": self.progress.train_seconds,
            "perf/total_num_tokens": sum(lengths),
            "perf/max_num_tokens": max(lengths, default=0),
            "perf/throughput": sum(lengths) / timings.seconds["step"],
            "perf/max_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "perf/sampled_tokens_per_second": tokens / timings.seconds["gen"],
        }
        if self.steps_ahead is not None:
            metrics |= staleness_metrics(episodes, step - 1)
        self._log_sample(recorded, episodes, step)
        self.console.step(
            StepReport(
                step=step,
                success=metrics["success/rate"],
                episode_return=metrics["episode/return/mean"],
                entropy=metrics.get("actor/entropy"),
                kl=metrics.get("actor/ppo_kl"),
                tokens_per_second=metrics["perf/sampled_tokens_per_second"],
            )
        )
        return metrics

    def _play(self, step: int, timings: Timings) -> Rollout:
        """The step's episodes: played now or, with `rollout.ahead`, since an earlier step."""
        if self.steps_ahead is None:
            with timings.part("gen"):
                return self._play_with(self.agent, self.sampler, step)
        with timings.part("waiting"):
            played = self.steps_ahead.take(step, self.sampler)
        timings.seconds["gen"] = played.seconds
        return played.result

    def _play_with(self, agent: OpenManusAgent, sampler: Sampler, step: int) -> Rollout:
        return play_step(agent, sampler, self.inputs.train, self.config, step)

    def _update(self, batch: DataProto, step: int, timings: Timings) -> dict[str, float]:
        """Update critic and actor; a batch from which every group was dropped changes nothing."""
        if not len(batch):
            return {"actor/updated": 0.0}
        proven = assert_only_sampled_tokens_train(batch)
        seed = stable_hash(f"{self.config.trainer.seed}/{step}") >> 16
        metrics = {"actor/updated": 1.0, "actor/proven_tokens": float(proven)}
        if self.roles.critic is not None and self.roles.critic is not self.roles.actor:
            with timings.part("update_critic"):
                metrics |= self.roles.critic.update_critic(batch, seed).meta_info["metrics"]
        with timings.part("update_actor"):
            metrics |= self.roles.actor.update_actor(batch, seed).meta_info["metrics"]
        return metrics

    def _validate(self) -> Evaluation:
        """Held-out success, shown, with every episode written down."""
        config = self.config
        evaluation = evaluate(
            self.agent,
            self.inputs.validation,
            config.trainer.seed,
            config.rollout.validation_temperature,
            config.data.validation_samples,
            find_strategy(config.rollout.validation_strategy, config.rollout.validation_strategy_options),
        )
        self.episode_log.write("validation", self.progress.step, evaluation.episodes)
        self.console.validation(self.progress.step, evaluation.success)
        self.progress.success_after = evaluation.success.to_dict()
        self.progress.measured_at = self.progress.step
        return evaluation

    def _save_checkpoint(self) -> None:
        """Everything a resumed run needs, whole or not at all; it is written while training goes on."""
        now = time.monotonic()
        self.progress.total_seconds += now - self._session_began
        self._session_began = now
        step, measured = self.progress.step, self.progress.measured_at
        success = self.progress.success_after["rate"] if measured == step else None
        self.checkpoints.wait()
        self.run.log_event("checkpoint", step=step, success=success)
        self.progress.events = self.run.event_log.count()
        self.checkpoints.save(
            step,
            lambda directory: stage_state(
                directory, self.roles, self.sampler, self.kl_control, self.guard, self.progress
            ),
            success,
        )
        self._saved_step = step

    def _read(self, checkpoint: Checkpoint) -> Progress:
        return read_state(checkpoint.path, self.roles, self.sampler, self.kl_control, self.guard)

    def _may_come_back(self) -> bool:
        """Whether the guard has nothing against this state as one that the run may go back to."""
        return not self.guard.is_suspicious or self.config.guard.action == "warn"

    def _goes_back(self, collapse: Collapse) -> bool:
        """Do what the config says about a collapse; whether the run is back at its last good checkpoint."""
        last = self.checkpoints.latest()
        assert last is not None, "a run begins with a checkpoint"
        action = self.config.guard.action
        if action == "rollback" and self.guard.rollbacks == self.config.guard.max_rollbacks:
            action = "stop"
        done = {
            "warn": "nothing but this (`guard.action=warn`).",
            "stop": f"the run was stopped; its last checkpoint is that of step {last.step}.",
            "rollback": f"back to the checkpoint of step {last.step}, with the actor's learning rate times "
            f"{self.config.guard.lr_factor:g}.",
        }[action]
        postmortem = self._write_postmortem(collapse, done)
        self.console.note(f"the guard, at step {collapse.step}: {collapse}")
        self.console.note(f"{done} Post-mortem: {postmortem}")
        self.run.log_event(
            "guard",
            step=collapse.step,
            action=action,
            cause=collapse.cause,
            readings={reading.signal.metric: [reading.usual, reading.value] for reading in collapse.readings},
            back_to=last.step if action == "rollback" else None,
            postmortem=postmortem.name,
        )
        if action == "stop":
            raise UserError(
                f"the guard stopped the run at step {collapse.step}: {collapse}.",
                f"{collapse.remedy} The post-mortem: {postmortem}",
            )
        if action == "rollback":
            self._go_back(last)
        return action == "rollback"

    def _go_back(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint with a smaller step; saved at once, so that a kill does not undo it."""
        rollbacks, now = self.guard.rollbacks + 1, self.progress
        self.progress = self._read(checkpoint)
        self.progress.train_seconds, self.progress.total_seconds = now.train_seconds, now.total_seconds
        self.guard.rollbacks = rollbacks
        self.roles.actor.scale_lr(self.config.guard.lr_factor)
        self._sync_weights()
        self._save_checkpoint()

    def _write_postmortem(self, collapse: Collapse, done: str) -> Path:
        """With the first held-out tasks as they were last validated, and as the policy plays them now."""
        config, measured_at = self.config, self.progress.measured_at
        now = evaluate(
            self.agent,
            self.inputs.validation[:POSTMORTEM_TASKS],
            config.trainer.seed,
            config.rollout.validation_temperature,
        ).episodes
        before = read_episodes(self.episode_log.path("validation", measured_at)) if measured_at is not None else []
        path = self.run.path / f"postmortem-{self.guard.rollbacks + 1}-step_{collapse.step:06d}.md"
        write_postmortem(path, collapse, done, measured_at, before, now)
        return path

    def _sync_weights(self) -> dict[str, float]:
        """The actor's weights to the engine, and the proof that it computes with them."""
        self.crew.mend()
        gap = self.crew.sync_weights(self.agent.run, self.probe, self.progress.step)
        if self.steps_ahead is not None:
            self.steps_ahead.policy_is(self.progress.step)
        return {"rollout/canary_gap": gap}

    def _is_due(self, every: int) -> bool:
        return self.progress.step % every == 0 or self.finished

    def _rows_to_record(self, batch: DataProto, episodes: list[Episode], timings: Timings) -> DataProto:
        """The rows of the episodes that will be written, with the trainer's log-probs before the update changes them.

        They are few, so what the update does without is computed for them alone.
        """
        rows = rows_of_first(batch, episodes, self.config.tracking.train_episodes_per_step)
        if not len(rows):
            return rows
        if self.config.actor.proximal == "recompute":
            rows.batch["trainer_log_probs"] = rows.batch["old_log_probs"]
            return rows
        with timings.part("old_log_prob"):
            rows.batch["trainer_log_probs"] = self.roles.actor.compute_log_prob(rows).batch["log_probs"]
        return rows

    def _log_sample(self, recorded: DataProto, episodes: list[Episode], step: int) -> None:
        count = self.config.tracking.train_episodes_per_step
        if count:
            self.episode_log.write("train", step, episodes[:count], credit_of_tokens(recorded, episodes))

    def _note_failures(self, episodes: list[Episode]) -> None:
        """A failed episode is not a sample; that some failed is not kept from whoever watches."""
        failed = [episode for episode in episodes if episode.stop_reason in StopReason.failures()]
        if failed:
            first = failed[0]
            self.console.note(
                f"{len(failed)} of {len(episodes)} episodes failed, the first by {first.stop_reason}: {first.failure}"
            )
