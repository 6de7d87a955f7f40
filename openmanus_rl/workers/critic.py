"""The critic: what a state is worth, before each sampled token and after the last one."""

from pathlib import Path
from typing import Any

import torch

from openmanus_rl.algorithms.losses import Denominators, aggregate
from openmanus_rl.algorithms.value_loss import value_loss
from openmanus_rl.config.schema import CriticConfig
from openmanus_rl.models.value import ValueModel
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.batching import iterate_micro_batches, to_responses
from openmanus_rl.workers.dispatch import Dispatch, dispatch
from openmanus_rl.workers.optim import Optimiser
from openmanus_rl.workers.updates import MetricSums, mini_batches


class CriticWorker:
    """A value model that starts from the policy's weights."""

    def __init__(self, model_dir: str, critic: CriticConfig, total_steps: int) -> None:
        self.model = ValueModel.load(Path(model_dir))
        self.critic = critic
        self.optimiser = Optimiser(self.model, critic, total_steps * critic.epochs * critic.mini_batches)

    @dispatch(Dispatch.SPLIT)
    @torch.no_grad()
    def compute_values(self, data: DataProto) -> DataProto:
        """`values` before each sampled token, `final_values` after each row's last token."""
        values = torch.zeros(data.batch["response_mask"].shape)
        final_values = torch.zeros(len(data))
        for micro in iterate_micro_batches(data, self.critic.micro_batch_tokens):
            after = self.model(micro.input_ids, None, micro.position_ids)
            values[micro.rows] = to_responses(_before(after), micro, data.batch["response_mask"][micro.rows])
            final_values[micro.rows] = after.gather(1, micro.last[:, None]).squeeze(1)
        return DataProto.from_dict({"values": values, "final_values": final_values})

    @dispatch(Dispatch.SPLIT)
    def update_critic(self, data: DataProto, seed: int) -> DataProto:
        """Move the values towards the returns; `meta_info["metrics"]` says what happened."""
        metrics = MetricSums()
        for mini in mini_batches(data, self.critic, seed):
            columns = mini.batch
            denominators = Denominators.of(columns["response_mask"], columns["episode_index"])
            for micro in iterate_micro_batches(mini, self.critic.micro_batch_tokens):
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
            metrics.add("critic/grad_norm", self.optimiser.step(), 1)
        explained = _explained_variance(data.batch["values"], data.batch["returns"], data.batch["response_mask"])
        return DataProto(
            meta_info={
                "metrics": {**metrics.means(), "critic/vf_explained_var": explained, "critic/lr": self.optimiser.lr}
            }
        )

    @dispatch(Dispatch.RANK0)
    def save(self, directory: Path) -> None:
        """The value model as a directory."""
        self.model.save(directory)

    @dispatch(Dispatch.RANK0)
    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the model."""
        return self.optimiser.state_dict()

    @dispatch(Dispatch.SAME)
    def load(self, directory: Path, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.model.load_state_dict(ValueModel.load(directory).state_dict())
        self.optimiser.load_state_dict(state)


def _before(after_BL: torch.Tensor) -> torch.Tensor:
    """The value before each token is the value after the one that stands before it."""
    return torch.nn.functional.pad(after_BL[:, :-1], (1, 0))


def _explained_variance(values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor) -> float:
    """1 if the values foretell the returns exactly, 0 if they say no more than the mean."""
    target, error = returns[mask], (returns - values)[mask]
    variance = target.var(unbiased=False)
    return float(1 - error.var(unbiased=False) / variance) if variance > 1e-12 else 0.0
