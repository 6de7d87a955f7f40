"""The actor: the policy's weights and how they change. The reference is an actor that never does."""

import asyncio
from contextlib import nullcontext
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from transformers import PreTrainedModel

from openmanus_rl.algorithms.kl import kl_estimate
from openmanus_rl.algorithms.losses import Denominators, LossInputs, aggregate
from openmanus_rl.algorithms.registry import find_loss, loss_options
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.models import lora
from openmanus_rl.models.forward import hidden_states
from openmanus_rl.models.head import log_probs_and_entropy
from openmanus_rl.models.layout import Tokens
from openmanus_rl.models.load import load_causal_lm, load_tokenizer, save_model
from openmanus_rl.models.planner import Planner
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.balance import own_rows
from openmanus_rl.workers.batching import MicroBatch, iterate_micro_batches, placed, to_responses
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.gap import note_gap, with_deviation
from openmanus_rl.workers.optim import Optimiser
from openmanus_rl.workers.parallel import device, rank
from openmanus_rl.workers.precision import keep_only_inputs, passes_in
from openmanus_rl.workers.registry import worker
from openmanus_rl.workers.saving import Saving, begin_training_state, copied, read_training_state
from openmanus_rl.workers.sharding import layers_of, load_whole_state, shard, whole_state
from openmanus_rl.workers.updates import MetricSums, mini_batches

MODEL_DIRECTORY = "actor"
OPTIMISER_DIRECTORY = "actor_optimiser"


class Policy(nn.Module):
    """A language model as a function to log-probs: what is sharded, since its weights are whole only within a call."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tokens, before_N: Tensor, labels_N: Tensor, temperature: float) -> tuple[Tensor, ...]:
        """Log-prob of each label as the token after the place before it, and the entropy there.

        Only those places go through the head: most tokens of an episode are observations.
        """
        hidden_ND = hidden_states(self.model.get_decoder(), tokens)[before_N]
        return log_probs_and_entropy(self.model, hidden_ND, labels_N, temperature)


@worker("reference")
class ReferenceWorker:
    """A frozen policy: log-probs of given tokens at the temperature they were sampled with."""

    def __init__(self, model_dir: str, config: RunConfig) -> None:
        if config.trainer.deterministic:
            torch.use_deterministic_algorithms(True)
        self.config = config
        self.temperature = config.rollout.temperature
        self.model = self._load_model(model_dir)
        self.model.eval()
        actor = config.actor
        self.planner = Planner(self.model.get_decoder(), actor.layout, actor.micro_batch_tokens, device())
        if config.actor.gradient_checkpointing:
            keep_only_inputs(layers_of(self.model))
        self.policy = self._make_policy()
        shard(self.policy, self.model)

    @dispatch(Dispatch.SPLIT)
    @torch.no_grad()
    def compute_log_prob(self, data: DataProto) -> DataProto:
        """`log_probs` and `entropy` of every sampled token, in the layout of `responses`."""
        data = placed(data)
        mask = data.batch["response_mask"]
        log_probs, entropy = (torch.zeros(mask.shape, device=mask.device) for _ in range(2))
        for micro in iterate_micro_batches(data, self.planner):
            log_probs[micro.rows], entropy[micro.rows] = self._forward(micro, mask[micro.rows])
        return DataProto.from_dict({"log_probs": log_probs.cpu(), "entropy": entropy.cpu()})

    def _load_model(self, model_dir: str) -> PreTrainedModel:
        return load_causal_lm(model_dir)

    def _make_policy(self) -> Policy:
        return Policy(self.model)

    def _forward(self, micro: MicroBatch, response_mask: Tensor) -> tuple[Tensor, Tensor]:
        with passes_in(self.config.actor):
            log_probs, entropy, *_ = self.policy(micro.tokens, micro.before, micro.labels, self.temperature)
        return to_responses(log_probs, micro, response_mask), to_responses(entropy, micro, response_mask)


@worker("actor")
class ActorWorker(ReferenceWorker):
    """The policy that learns: all its weights, or with `model.lora` its adapters."""

    def __init__(self, model_dir: str, config: RunConfig) -> None:
        super().__init__(model_dir, config)
        self.model_dir = model_dir
        self.tokenizer = load_tokenizer(model_dir)
        self.loss = find_loss(config.algorithm.loss)
        self.loss_options = loss_options(config.algorithm.loss, config.algorithm.loss_options)
        steps = config.trainer.steps * config.actor.epochs * config.actor.mini_batches
        self.optimiser = Optimiser(self._learner(), config.actor, steps, Path(config.trainer.cache_dir))
        self.saving = Saving()

    @property
    def has_adapters(self) -> bool:
        """Whether only adapters train."""
        return self.config.model.lora.rank > 0

    @dispatch(Dispatch.SPLIT)
    def compute_reference_log_prob(self, data: DataProto) -> DataProto:
        """As `compute_log_prob`, with the adapters off: the model that training started from."""
        if not self.has_adapters:
            raise ValueError("an actor without adapters is no reference for itself: all its weights change")
        with lora.adapters_off(self.model):
            return self.compute_log_prob(data)

    @dispatch(Dispatch.SAME)
    def update_actor(self, data: DataProto, seed: int) -> DataProto:
        """Follow the advantages; `meta_info["metrics"]` says what happened.

        Every rank gets all rows and computes a share of each mini-batch.
        """
        metrics = MetricSums()
        with lora.dropout_on(self.model) if self.has_adapters else nullcontext():
            for number, mini in enumerate(mini_batches(data, self.config.actor, seed)):
                self._accumulate_gradient(mini, metrics, weights_unchanged=number == 0)
                metrics.add("actor/grad_norm", self.optimiser.step(), 1)
        return DataProto(meta_info={"metrics": {**with_deviation(metrics.means()), "actor/lr": self.optimiser.lr}})

    @dispatch(Dispatch.SAME)
    @torch.no_grad()
    def score(self, ids: list[int], temperature: float) -> list[float]:
        """Log-probs of `ids[1:]` in float32: what an engine with the same weights must find too."""
        tokens = torch.tensor(ids, device=device())
        before = torch.arange(len(ids) - 1, device=device())
        log_probs, *_ = self.policy(Tokens.of(tokens[None]), before, tokens[1:], temperature)
        scores: list[float] = log_probs.tolist()
        return scores

    @dispatch(Dispatch.SAME)
    def weights(self) -> dict[str, Tensor]:
        """What an engine needs after an update: all weights by their Hugging Face names, or the adapters' by peft's.

        Rank 0 has them, on the CPU; a single rank gives its own tensors, not copies.
        """
        state = whole_state(self.model)
        return lora.named_for_files(state) if self.has_adapters else state

    @dispatch(Dispatch.RANK0)
    def parameter_count(self) -> int:
        """Weights of the whole model, whether they train or not."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @dispatch(Dispatch.SAME)
    def save(self, checkpoint: Path) -> None:
        """Begin to write `actor/`, a Hugging Face directory or peft's, and beside it what training goes on with.

        A copy is taken at once; `saved` waits for the rest.
        """
        weights, directory = copied(self.weights()), checkpoint / MODEL_DIRECTORY
        if rank() == 0 and self.has_adapters:
            self.saving.begin(
                lambda: lora.save_adapters(self.model, weights, self.model_dir, self.tokenizer, directory)
            )
        elif rank() == 0:
            self.saving.begin(lambda: save_model(self.model, self.tokenizer, directory, weights))
        begin_training_state(self.saving, self.optimiser, checkpoint / OPTIMISER_DIRECTORY)

    @dispatch(Dispatch.SAME)
    async def saved(self) -> None:
        """Until what `save` began is written."""
        await asyncio.to_thread(self.saving.wait)

    @dispatch(Dispatch.SAME)
    def load(self, checkpoint: Path) -> None:
        """Go on from a checkpoint, in the same module that an engine may share."""
        directory = checkpoint / MODEL_DIRECTORY
        if self.has_adapters:
            load_whole_state(self.model, lora.named_for_module(lora.read_adapters(directory)))
        else:
            load_whole_state(self.model, load_causal_lm(str(directory)).state_dict())
        read_training_state(self.saving, self.optimiser, checkpoint / OPTIMISER_DIRECTORY)

    @dispatch(Dispatch.SAME)
    def scale_lr(self, factor: float) -> None:
        """Learn with another step from here on."""
        self.optimiser.scale_lr(factor)

    def _learner(self) -> nn.Module:
        """Whose weights the optimiser changes."""
        return self.model

    def _load_model(self, model_dir: str) -> PreTrainedModel:
        model = super()._load_model(model_dir)
        if self.has_adapters:
            lora.add_adapters(model, self.config.model.lora, self.config.trainer.seed)
        return model

    def _accumulate_gradient(self, mini: DataProto, metrics: MetricSums, weights_unchanged: bool = False) -> None:
        """Add this rank's share of the mini-batch's gradient; the denominators are those of the whole mini-batch.

        While the update has not yet changed the weights, the log-probs that the loss needs also tell how far the
        engine's are from them.
        """
        mini = placed(mini)
        columns = mini.batch
        denominators = Denominators.of(
            columns["response_mask"], columns["episode_index"], length_norm=self.config.agent.max_episode_tokens
        )
        for micro in iterate_micro_batches(mini, self.planner, own_rows(mini)):
            rows = columns[micro.rows]
            loss, log_probs = self._loss(micro, rows, denominators.select(micro.rows), metrics)
            if weights_unchanged:
                mask = rows["response_mask"]
                trainer = self._without_dropout(log_probs, micro, mask)
                note_gap(metrics, rows["rollout_log_probs"][mask], trainer[mask])
            loss.backward()
            metrics.add("perf/token_reuse", micro.row_tokens, micro.computed)

    def _loss(
        self, micro: MicroBatch, columns: TensorDict, denominators: Denominators, metrics: MetricSums
    ) -> tuple[Tensor, Tensor]:
        """The micro-batch's part of the loss, and its log-probs; `columns` and `denominators` are those of its rows."""
        log_probs, entropy = self._forward(micro, columns["response_mask"])
        return self._policy_loss(log_probs, entropy, columns, denominators, metrics), log_probs

    def _policy_loss(
        self, log_probs: Tensor, entropy: Tensor, columns: TensorDict, denominators: Denominators, metrics: MetricSums
    ) -> Tensor:
        algorithm, mask = self.config.algorithm, columns["response_mask"]
        tokens = int(mask.sum())
        token_loss = self.loss(
            LossInputs(log_probs, columns["old_log_probs"], columns["advantages"], mask), self.loss_options
        )
        policy_loss = token_loss.loss_RT
        if "correction_weights" in columns:
            policy_loss = policy_loss * columns["correction_weights"]
        total = policy_loss
        if self.config.actor.entropy_coefficient:
            total = total - self.config.actor.entropy_coefficient * entropy
        if algorithm.kl.where == "loss":
            kl = kl_estimate(log_probs, columns["ref_log_prob"], algorithm.kl.kind)
            total = total + algorithm.kl.coefficient * kl
            metrics.add("actor/kl_loss", kl.detach()[mask].sum(), tokens)
        metrics.add("actor/pg_loss", policy_loss.detach()[mask].sum(), tokens)
        metrics.add("actor/entropy", entropy.detach().sum(), tokens)
        for name, value in token_loss.sums.items():
            metrics.add(f"actor/{name}", value, tokens)
        return aggregate(total, mask, algorithm.aggregation, denominators)

    def _without_dropout(self, log_probs: Tensor, micro: MicroBatch, mask: Tensor) -> Tensor:
        """The log-probs as an engine computes them; once more, if these come from adapters that dropped inputs."""
        if not (self.has_adapters and self.config.model.lora.dropout):
            return log_probs.detach()
        with torch.no_grad(), lora.dropout_off(self.model):
            return self._forward(micro, mask)[0]
