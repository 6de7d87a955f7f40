"""Real rollouts with the columns of an update, workers on a small model, and losses computed the long way."""

from pathlib import Path
from typing import Any

import torch
from playing import request, setting
from torch import Tensor, nn
from toy_worlds import Counter

from openmanus_rl.agent.rows import episodes_to_rows
from openmanus_rl.config.schema import RunConfig
from openmanus_rl.models.tiny import TinyModelSpec, build_tiny_model
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker, ReferenceWorker
from openmanus_rl.workers.critic import CriticWorker
from openmanus_rl.workers.updates import MetricSums

TEMPERATURE = 0.7
LENGTH_NORM = 50


def build_model(directory: Path) -> None:
    corpus = [f"native: {count} of 3 Thought: go Action: up" for count in range(9)]
    build_tiny_model(directory, corpus, TinyModelSpec(hidden_size=32, heads=2, max_positions=512), seed=1)


def play_rows(model_dir: Path, model: Any = None, seeds: range = range(6)) -> DataProto:
    """Multi-turn episodes of the model."""
    with setting(model_dir, Counter, agent={"max_turns": 4, "max_tokens_per_turn": 9}, model=model) as here:
        episodes = here.agent.play([request(seed=seed, temperature=TEMPERATURE) for seed in seeds])
    rows = episodes_to_rows(episodes, pad_token_id=0)
    columns = rows.batch
    shape = columns["response_mask"].shape
    dice = torch.Generator().manual_seed(5)
    columns["old_log_probs"] = columns["rollout_log_probs"] + 0.1 * torch.randn(shape, generator=dice)
    columns["ref_log_prob"] = columns["rollout_log_probs"] + 0.3 * torch.randn(shape, generator=dice)
    columns["advantages"] = torch.randn(shape, generator=dice)
    columns["values"] = 0.1 * torch.randn(shape, generator=dice)
    columns["returns"] = torch.randn(shape, generator=dice)
    # Rows 0 and 1 count as two segments of one episode.
    columns["episode_index"] = torch.tensor([7, 7, 2, 9, 4, 0])
    columns["segment_index"] = torch.tensor([0, 1, 0, 0, 0, 0])
    return rows


def run_config(**sections: dict[str, Any]) -> RunConfig:
    """A run of ten steps that samples as `play_rows` does."""
    common = {
        "agent": {"max_episode_tokens": LENGTH_NORM},
        "rollout": {"temperature": TEMPERATURE},
        "trainer": {"steps": 10},
    }
    return RunConfig(**{**common, **sections})


def actor_worker(model_dir: Path, algorithm: dict[str, Any] | None = None, **actor: Any) -> ActorWorker:
    return ActorWorker(str(model_dir), run_config(algorithm=algorithm or {}, actor=actor))


def reference_worker(model_dir: Path, temperature: float = TEMPERATURE, **actor: Any) -> ReferenceWorker:
    return ReferenceWorker(str(model_dir), run_config(rollout={"temperature": temperature}, actor=actor))


def critic_worker(model_dir: Path, **critic: Any) -> CriticWorker:
    """With a head that has learnt something: a new one says 0 everywhere."""
    worker = CriticWorker(str(model_dir), run_config(critic=critic))
    with torch.no_grad():
        worker.model.head.weight.normal_(std=0.3, generator=torch.Generator().manual_seed(2))
    return worker


def accumulated_gradient(worker: ActorWorker, batch: DataProto) -> Tensor:
    """The gradient of a mini-batch, as one vector."""
    worker._accumulate_gradient(batch, MetricSums())
    return take_gradient(worker.model)


def take_gradient(model: nn.Module) -> Tensor:
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    model.zero_grad(set_to_none=True)
    return flat


def parameters(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def distance(one: Tensor, other: Tensor) -> float:
    """Relative to the second."""
    return float((one - other).norm() / other.norm())


def tokens_of(batch: DataProto, row: int) -> tuple[Tensor, Tensor]:
    """The row without padding: its ids, and for each whether it was sampled."""
    inside = batch.batch["attention_mask"][row].bool()
    prompt_width = batch.batch["prompts"].shape[1]
    sampled = torch.cat([torch.zeros(prompt_width, dtype=torch.bool), batch.batch["response_mask"][row]])
    return batch.batch["input_ids"][row][inside], sampled[inside]


def in_row(column: Tensor, batch: DataProto, row: int) -> Tensor:
    """A column's values at the row's sampled tokens."""
    return column[row][batch.batch["response_mask"][row]]


def more_padding(batch: DataProto) -> DataProto:
    """The same rows, with 3 columns of padding before the prompts and 5 after the responses."""
    prompts = {"prompts"}
    whole = {"input_ids", "attention_mask", "position_ids"}
    tensors = {}
    for name, column in batch.batch.items():
        if column.ndim == 1:
            tensors[name] = column
            continue
        left, right = 3 * (name in prompts | whole), 5 * (name not in prompts)
        tensors[name] = nn.functional.pad(column, (left, right))
    return DataProto.from_dict(tensors, dict(batch.non_tensor_batch))
