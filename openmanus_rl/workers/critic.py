"""The critic: what a state is worth, before each sampled token and after the last one."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor

from openmanus_rl.algorithms.losses import Denominators, aggregate
from openmanus_rl.algorithms.value_loss import value_loss
from openmanus_rl.config.schema import CriticConfig, RunConfig
from openmanus_rl.models.planner import Planner
from openmanus_rl.models.value import ValueModel
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.balance import own_rows
from openmanus_rl.workers.batching import MicroBatch, iterate_micro_batches, placed, to_responses
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.optim import Optimiser
from openmanus_rl.workers.parallel import device, rank
from openmanus_rl.workers.precision import keep_only_inputs, passes_in
from openmanus_rl.workers.registry import worker
from openmanus_rl.workers.saving import Saving, begin_training_state, copied, read_training_state
from openmanus_rl.workers.sharding import layers_of, load_whole_state, shard, whole_state
from openmanus_rl.workers.updates import MetricSums, mini_batches

MODEL_DIRECTORY = "critic"
OPTIMISER_DIRECTORY = "critic_optimiser"


@worker("critic")
class CriticWorker:
    """A value model that starts from the policy's weights."""

    def __init__(self, model_dir: str, config: RunConfig) -> None:
        if config.trainer.deterministic:
            torch.use_deterministic_algorithms(True)
        self.critic = config.critic
        self.model = ValueModel.load(Path(model_dir))
        self.planner = Planner(self.model.trunk, self.critic.layout, self.critic.micro_batch_tokens, device())
        if self.critic.gradient_checkpointing:
            keep_only_inputs(layers_of(self.model.trunk))
        shard(self.model, self.model.trunk)
        steps = config.trainer.steps * self.critic.epochs * self.critic.mini_batches
        self.optimiser = Optimiser(self.model, self.critic, steps, Path(config.trainer.cache_dir))
        self.saving = Saving()

    @dispatch(Dispatch.SPLIT)
    @torch.no_grad()
    def compute_values(self, data: DataProto) -> DataProto:
        """`values` before each sampled token, `final_values` after each row's last token."""
        return values_of_rows(data, self.planner, self._values)

    @dispatch(Dispatch.SAME)
    def update_critic(self, data: DataProto, seed: int) -> DataProto:
        """Move the values towards the returns; `meta_info["metrics"]` says what happened.

        Every rank gets all rows and computes a share of each mini-batch.
        """
        metrics = MetricSums()
        for mini in mini_batches(data, self.critic, seed):
            self._accumulate_gradient(mini, metrics)
            metrics.add("critic/grad_norm", self.optimiser.step(), 1)
        found = {**metrics.means(), **explained_variance(data), "critic/lr": self.optimiser.lr}
        return DataProto(meta_info={"metrics": found})

    @dispatch(Dispatch.SAME)
    def save(self, checkpoint: Path) -> None:
        """Begin to write `critic/`, the value model as a directory, and beside it what training goes on with.

        A copy is taken at once; `saved` waits for the rest.
        """
        weights = copied(whole_state(self.model))
        if rank() == 0:
            self.saving.begin(lambda: self.model.save(checkpoint / MODEL_DIRECTORY, weights))
        begin_training_state(self.saving, self.optimiser, checkpoint / OPTIMISER_DIRECTORY)

    @dispatch(Dispatch.SAME)
    async def saved(self) -> None:
        """Until what `save` began is written."""
        await asyncio.to_thread(self.saving.wait)

    @dispatch(Dispatch.SAME)
    def load(self, checkpoint: Path) -> None:
        """Go on from a checkpoint."""
        load_whole_state(self.model, ValueModel.load(checkpoint / MODEL_DIRECTORY).state_dict())
        read_training_state(self.saving, self.optimiser, checkpoint / OPTIMISER_DIRECTORY)

    def _values(self, micro: MicroBatch) -> Tensor:
        """The value after each place."""
        with passes_in(self.critic):
            after: Tensor = self.model(micro.tokens)
        return after

    def _accumulate_gradient(self, mini: DataProto, metrics: MetricSums) -> None:
        """Add this rank's share of the mini-batch's gradient; the denominators are those of the whole mini-batch."""
        mini = placed(mini)
        columns = mini.batch
        denominators = Denominators.of(columns["response_mask"], columns["episode_index"])
        for micro in iterate_micro_batches(mini, self.planner, own_rows(mini)):
            loss = critic_loss(
                self._values(micro), micro, columns[micro.rows], denominators.select(micro.rows), self.critic, metrics
            )
            loss.backward()


def values_of_rows(data: DataProto, planner: Planner, values: Callable[[MicroBatch], Tensor]) -> DataProto:
    """`values` before each sampled token, `final_values` after each row's last; `values(…)` are those at each place."""
    data = placed(data)
    mask = data.batch["response_mask"]
    before = torch.zeros(mask.shape, device=mask.device)
    final = torch.zeros(len(data), device=mask.device)
    for micro in iterate_micro_batches(data, planner):
        after = values(micro)
        before[micro.rows] = to_responses(after[micro.before], micro, mask[micro.rows])
        final[micro.rows] = after[micro.last]
    return DataProto.from_dict({"values": before.cpu(), "final_values": final.cpu()})


def critic_loss(
    after: Tensor,
    micro: MicroBatch,
    columns: TensorDict,
    denominators: Denominators,
    config: CriticConfig,
    metrics: MetricSums,
) -> Tensor:
    """The micro-batch's part of the loss of the values `after` each place; `columns` are those of its rows."""
    mask = columns["response_mask"]
    values = to_responses(after[micro.before], micro, mask)
    token_loss = value_loss(values, columns["values"], columns["returns"], mask, config.value_clip)
    metrics.add("critic/vf_loss", token_loss.loss_RT.detach().sum(), int(mask.sum()))
    for name, value in token_loss.sums.items():
        metrics.add(f"critic/{name}", value, int(mask.sum()))
    return aggregate(token_loss.loss_RT, mask, "token-mean", denominators)


def explained_variance(data: DataProto) -> dict[str, float]:
    """1 if the values foretold the returns exactly, 0 if they said no more than the mean."""
    columns = data.batch
    mask = columns["response_mask"]
    target, error = columns["returns"][mask], (columns["returns"] - columns["values"])[mask]
    variance = target.var(unbiased=False)
    explained = float(1 - error.var(unbiased=False) / variance) if variance > 1e-12 else 0.0
    return {"critic/vf_explained_var": explained}
