"""The critic: what a state is worth, before each sampled token and after the last one."""

import asyncio
from pathlib import Path

import torch

from openmanus_rl.algorithms.losses import Denominators, aggregate
from openmanus_rl.algorithms.value_loss import value_loss
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.models.value import ValueModel
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.balance import own_rows
from openmanus_rl.workers.batching import iterate_micro_batches, placed, to_responses
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.optim import Optimiser
from openmanus_rl.workers.parallel import rank
from openmanus_rl.workers.registry import worker
from openmanus_rl.workers.saving import Saving, begin_training_state, copied, read_training_state
from openmanus_rl.workers.sharding import load_whole_state, shard, whole_state
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
        shard(self.model, self.model.trunk)
        steps = config.trainer.steps * self.critic.epochs * self.critic.mini_batches
        self.optimiser = Optimiser(self.model, self.critic, steps)
        self.saving = Saving()

    @dispatch(Dispatch.SPLIT)
    @torch.no_grad()
    def compute_values(self, data: DataProto) -> DataProto:
        """`values` before each sampled token, `final_values` after each row's last token."""
        data = placed(data)
        mask = data.batch["response_mask"]
        values = torch.zeros(mask.shape, device=mask.device)
        final_values = torch.zeros(len(data), device=mask.device)
        for micro in iterate_micro_batches(data, self.critic.micro_batch_tokens):
            after = self.model(micro.input_ids, None, micro.position_ids)
            values[micro.rows] = to_responses(_before(after), micro, mask[micro.rows])
            final_values[micro.rows] = after.gather(1, micro.last[:, None]).squeeze(1)
        return DataProto.from_dict({"values": values.cpu(), "final_values": final_values.cpu()})

    @dispatch(Dispatch.SAME)
    def update_critic(self, data: DataProto, seed: int) -> DataProto:
        """Move the values towards the returns; `meta_info["metrics"]` says what happened.

        Every rank gets all rows and computes a share of each mini-batch.
        """
        metrics = MetricSums()
        for mini in mini_batches(data, self.critic, seed):
            self._accumulate_gradient(mini, metrics)
            metrics.add("critic/grad_norm", self.optimiser.step(), 1)
        explained = _explained_variance(data.batch["values"], data.batch["returns"], data.batch["response_mask"])
        return DataProto(
            meta_info={
                "metrics": {**metrics.means(), "critic/vf_explained_var": explained, "critic/lr": self.optimiser.lr}
            }
        )

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

    def _accumulate_gradient(self, mini: DataProto, metrics: MetricSums) -> None:
        """Add this rank's share of the mini-batch's gradient; the denominators are those of the whole mini-batch."""
        mini = placed(mini)
        columns = mini.batch
        denominators = Denominators.of(columns["response_mask"], columns["episode_index"])
        for micro in iterate_micro_batches(mini, self.critic.micro_batch_tokens, own_rows(mini)):
            mask = columns["response_mask"][micro.rows]
            after = self.model(micro.input_ids, None, micro.position_ids)
            token_loss = value_loss(
                to_responses(_before(after), micro, mask),
                columns["values"][micro.rows],
                columns["returns"][micro.rows],
                mask,
                self.critic.value_clip,
            )
            loss = aggregate(token_loss.loss_RT, mask, "token-mean", denominators.select(micro.rows))
            loss.backward()
            metrics.add("critic/vf_loss", token_loss.loss_RT.detach().sum(), int(mask.sum()))
            for name, value in token_loss.sums.items():
                metrics.add(f"critic/{name}", value, int(mask.sum()))


def _before(after_BL: torch.Tensor) -> torch.Tensor:
    """The value before each token is the value after the one that stands before it."""
    return torch.nn.functional.pad(after_BL[:, :-1], (1, 0))


def _explained_variance(values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor) -> float:
    """1 if the values foretell the returns exactly, 0 if they say no more than the mean."""
    target, error = returns[mask], (returns - values)[mask]
    variance = target.var(unbiased=False)
    return float(1 - error.var(unbiased=False) / variance) if variance > 1e-12 else 0.0
