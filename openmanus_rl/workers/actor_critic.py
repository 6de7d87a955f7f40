"""An actor whose model also says what states are worth: one trunk, two heads, one pass and one optimiser for both."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tensordict import TensorDict
from torch import Tensor, nn
from transformers import PreTrainedModel

from openmanus_rl.algorithms.losses import Denominators
from openmanus_rl.models.forward import hidden_states
from openmanus_rl.models.head import log_probs_and_entropy
from openmanus_rl.models.layout import Tokens
from openmanus_rl.models.value import ValueHead
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker, Policy
from openmanus_rl.workers.batching import MicroBatch, to_responses
from openmanus_rl.workers.critic import critic_loss, explained_variance, values_of_rows
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.parallel import rank
from openmanus_rl.workers.precision import passes_in
from openmanus_rl.workers.registry import worker
from openmanus_rl.workers.saving import copied
from openmanus_rl.workers.sharding import load_whole_state, whole_state
from openmanus_rl.workers.updates import MetricSums

HEAD_FILE = "actor_value_head.safetensors"


class PolicyWithValues(Policy):
    """A language model as a function to log-probs, entropies and values."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self.value_head = ValueHead(model)

    def forward(self, tokens: Tokens, before_N: Tensor, labels_N: Tensor, temperature: float) -> tuple[Tensor, ...]:
        """As the policy's, and the value at each place."""
        hidden = hidden_states(self.model.get_decoder(), tokens)
        log_probs, entropy = log_probs_and_entropy(self.model, hidden[before_N], labels_N, temperature)
        return log_probs, entropy, self.value_head(hidden)


@worker("actor_critic")
class ActorCriticWorker(ActorWorker):
    """The policy that learns, with the critic as a second head."""

    policy: PolicyWithValues

    @dispatch(Dispatch.SPLIT)
    @torch.no_grad()
    def compute_values(self, data: DataProto) -> DataProto:
        """`values` before each sampled token, `final_values` after each row's last token."""
        return values_of_rows(data, self.planner, lambda micro: self._pass(micro)[2])

    @dispatch(Dispatch.SAME)
    def update_actor(self, data: DataProto, seed: int) -> DataProto:
        """Follow the advantages and move the values towards the returns, in the same steps."""
        answer = super().update_actor(data, seed)
        answer.meta_info["metrics"] |= explained_variance(data)
        return answer

    @dispatch(Dispatch.SAME)
    def save(self, checkpoint: Path) -> None:
        """As the actor's, with the critic's head beside it."""
        super().save(checkpoint)
        head = copied(whole_state(self.policy.value_head))
        if rank() == 0:
            self.saving.begin(lambda: save_file(head, checkpoint / HEAD_FILE))

    @dispatch(Dispatch.SAME)
    def load(self, checkpoint: Path) -> None:
        """As the actor's, with the critic's head."""
        super().load(checkpoint)
        load_whole_state(self.policy.value_head, load_file(checkpoint / HEAD_FILE))

    def _make_policy(self) -> PolicyWithValues:
        return PolicyWithValues(self.model)

    def _learner(self) -> nn.Module:
        return self.policy

    def _pass(self, micro: MicroBatch) -> tuple[Tensor, Tensor, Tensor]:
        with passes_in(self.config.actor):
            log_probs, entropy, after = self.policy(micro.tokens, micro.before, micro.labels, self.temperature)
        return log_probs, entropy, after

    def _loss(
        self, micro: MicroBatch, columns: TensorDict, denominators: Denominators, metrics: MetricSums
    ) -> tuple[Tensor, Tensor]:
        log_probs, entropy, after = self._pass(micro)
        mask, critic = columns["response_mask"], self.config.critic
        log_probs, entropy = to_responses(log_probs, micro, mask), to_responses(entropy, micro, mask)
        of_policy = self._policy_loss(log_probs, entropy, columns, denominators, metrics)
        of_critic = critic_loss(after, micro, columns, denominators, critic, metrics)
        return of_policy + critic.coefficient * of_critic, log_probs
