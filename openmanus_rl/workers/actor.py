"""The actor: the policy's weights and how they change. The reference is an actor that never does."""

from pathlib import Path
from typing import Any

import torch

from openmanus_rl.algorithms.kl import kl_estimate
from openmanus_rl.algorithms.losses import Denominators, LossInputs, aggregate
from openmanus_rl.algorithms.registry import find_loss, loss_options
from openmanus_rl.config.schema import ActorConfig, AlgorithmConfig
from openmanus_rl.models.forward import token_log_probs
from openmanus_rl.models.load import load_causal_lm, load_tokenizer, save_model
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.batching import MicroBatch, iterate_micro_batches, to_responses
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.optim import Optimiser
from openmanus_rl.workers.updates import MetricSums, mini_batches


class ReferenceWorker:
    """A frozen policy: log-probs of given tokens at the temperature they were sampled with."""

    def __init__(self, model_dir: str, micro_batch_tokens: int, temperature: float) -> None:
        self.model = load_causal_lm(model_dir)
        self.model.eval()
        self.micro_batch_tokens = micro_batch_tokens
        self.temperature = temperature

    @dispatch(Dispatch.SPLIT)
    @torch.no_grad()
    def compute_log_prob(self, data: DataProto) -> DataProto:
        """`log_probs` and `entropy` of every sampled token, in the layout of `responses`."""
        shape = data.batch["response_mask"].shape
        log_probs, entropy = torch.zeros(shape), torch.zeros(shape)
        for micro in iterate_micro_batches(data, self.micro_batch_tokens):
            mask = data.batch["response_mask"][micro.rows]
            log_probs[micro.rows], entropy[micro.rows] = self._forward(micro, mask)
        return DataProto.from_dict({"log_probs": log_probs, "entropy": entropy})

    def _forward(self, micro: MicroBatch, response_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs, entropy = token_log_probs(
            self.model, micro.input_ids, None, micro.position_ids, micro.sampled, self.temperature
        )
        return to_responses(log_probs, micro, response_mask), to_responses(entropy, micro, response_mask)


class ActorWorker(ReferenceWorker):
    """The policy that learns."""

    def __init__(
        self,
        model_dir: str,
        actor: ActorConfig,
        algorithm: AlgorithmConfig,
        temperature: float,
        length_norm: int,
        total_steps: int,
    ) -> None:
        super().__init__(model_dir, actor.micro_batch_tokens, temperature)
        self.tokenizer = load_tokenizer(model_dir)
        self.actor = actor
        self.algorithm = algorithm
        self.length_norm = length_norm
        self.loss = find_loss(algorithm.loss)
        self.loss_options = loss_options(algorithm.loss, algorithm.loss_options)
        self.optimiser = Optimiser(self.model, actor, total_steps * actor.epochs * actor.mini_batches)

    @dispatch(Dispatch.SPLIT)
    def update_actor(self, data: DataProto, seed: int) -> DataProto:
        """Follow the advantages; `meta_info["metrics"]` says what happened."""
        metrics = MetricSums()
        for mini in mini_batches(data, self.actor, seed):
            self._accumulate_gradient(mini, metrics)
            metrics.add("actor/grad_norm", self.optimiser.step(), 1)
        return DataProto(meta_info={"metrics": {**metrics.means(), "actor/lr": self.optimiser.lr}})

    def _accumulate_gradient(self, mini: DataProto, metrics: MetricSums) -> None:
        columns = mini.batch
        denominators = Denominators.of(columns["response_mask"], columns["episode_index"], length_norm=self.length_norm)
        for micro in iterate_micro_batches(mini, self.micro_batch_tokens):
            mask = columns["response_mask"][micro.rows]
            log_probs, entropy = self._forward(micro, mask)
            token_loss = self.loss(
                LossInputs(log_probs, columns["old_log_probs"][micro.rows], columns["advantages"][micro.rows], mask),
                self.loss_options,
            )
            tokens = int(mask.sum())
            total = token_loss.loss_RT - self.actor.entropy_coefficient * entropy
            if self.algorithm.kl.where == "loss":
                kl = kl_estimate(log_probs, columns["ref_log_prob"][micro.rows], self.algorithm.kl.kind)
                total = total + self.algorithm.kl.coefficient * kl
                metrics.add("actor/kl_loss", kl.detach()[mask].sum(), tokens)
            loss = aggregate(total, mask, self.algorithm.aggregation, denominators.select(micro.rows))
            loss.backward()
            metrics.add("actor/pg_loss", token_loss.loss_RT.detach()[mask].sum(), tokens)
            metrics.add("actor/entropy", entropy.detach().sum(), tokens)
            for name, value in token_loss.sums.items():
                metrics.add(f"actor/{name}", value, tokens)

    @dispatch(Dispatch.RANK0)
    def save(self, directory: Path) -> None:
        """The model as a plain Hugging Face directory."""
        save_model(self.model, self.tokenizer, directory)

    @dispatch(Dispatch.RANK0)
    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the model."""
        return self.optimiser.state_dict()

    @dispatch(Dispatch.SAME)
    def load(self, directory: Path, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, in the same module that the engine shares."""
        self.model.load_state_dict(load_causal_lm(str(directory)).state_dict())
        self.optimiser.load_state_dict(state)
