"""Work that any number of ranks does alike, so that one process and several can be compared. As a program: one rank."""

import asyncio
import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed

from openmanus_rl.config.schema import RunConfig
from openmanus_rl.models import head
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.actor import ActorWorker, ReferenceWorker
from openmanus_rl.workers.balance import shares
from openmanus_rl.workers.critic import CriticWorker
from openmanus_rl.workers.parallel import gathered, rank, rank_count
from openmanus_rl.workers.sharding import whole_state, whole_tensors
from openmanus_rl.workers.updates import MetricSums

ROW_COUNTS = (6, 5, 1)
"""Rows that divide over two ranks, that do not, and fewer than there are ranks."""


def config(**sections: Any) -> RunConfig:
    """Micro-batches so small that the ranks need different numbers of them."""
    common = {
        "rollout": {"temperature": 0.7},
        "trainer": {"steps": 10},
        "algorithm": {"kl": {"where": "loss", "coefficient": 0.3}, "aggregation": "seq-mean-token-mean"},
        "actor": {"lr": 1e-3, "epochs": 2, "mini_batches": 4, "micro_batch_tokens": 150, "entropy_coefficient": 0.1},
        "critic": {"lr": 1e-3, "mini_batches": 4, "micro_batch_tokens": 150},
    }
    return RunConfig(**{**common, **sections})


def everything(model_dir: str, critic_dir: str, rows: DataProto, saved: Path, other: Path) -> dict[str, Any]:
    """All that is compared. `saved` gets a checkpoint; `other`, where it exists, has one of another number of ranks.

    So few logits at once that most micro-batches go through the head in several slices.
    """
    with mock.patch.object(head, "LOGITS_AT_ONCE", 5_000):
        return {
            "actor": actor_results(model_dir, rows, saved, other),
            "critic": critic_results(critic_dir, rows, saved, other),
            "lora": lora_results(model_dir, rows, saved, other),
            "refusal": refusal(model_dir, rows),
        }


def actor_results(model_dir: str, rows: DataProto, saved: Path, other: Path) -> dict[str, Any]:
    worker = ActorWorker(model_dir, config())
    results: dict[str, Any] = {
        "parameters": worker.parameter_count(),
        "held": sum(parameter_size(parameter) for parameter in worker.model.parameters()),
        "gradients": {count: gradient(worker, rows[:count]) for count in ROW_COUNTS},
        "log_probs": {count: split(worker.compute_log_prob, rows[:count]) for count in ROW_COUNTS},
        "reference": split(ReferenceWorker(model_dir, config()).compute_log_prob, rows),
        "score": worker.score(rows.batch["input_ids"][0].tolist(), 0.5),
    }
    results["metrics"] = [worker.update_actor(rows[:count], count).meta_info["metrics"] for count in ROW_COUNTS]
    results["weights"] = copied(worker.weights())
    save(worker, saved)
    results |= after_loading(ActorWorker(model_dir, config()), saved, "own")
    if other.exists():
        resumed = ActorWorker(model_dir, config())
        results |= after_loading(resumed, other, "others")
        results["resumed_metrics"] = resumed.update_actor(rows, 7).meta_info["metrics"]
        results["resumed_weights"] = copied(whole_state(resumed.model))
    results["metrics_after"] = worker.update_actor(rows, 7).meta_info["metrics"]
    results["weights_after"] = copied(worker.weights())
    results["sgd_weights"] = after_sgd(model_dir, rows)
    return results


def after_sgd(model_dir: str, rows: DataProto) -> dict[str, Tensor]:
    """Three steps along the plain gradient."""
    worker = ActorWorker(model_dir, config(actor={"mini_batches": 1, "micro_batch_tokens": 150}))
    worker.optimiser.adamw = torch.optim.SGD(worker.optimiser.parameters, lr=0.3)
    worker.optimiser.schedule = torch.optim.lr_scheduler.LambdaLR(worker.optimiser.adamw, lambda step: 1.0)
    for count in ROW_COUNTS:
        worker.update_actor(rows[:count], 0)
    return worker.weights()


def critic_results(model_dir: str, rows: DataProto, saved: Path, other: Path) -> dict[str, Any]:
    worker = CriticWorker(model_dir, config())
    results: dict[str, Any] = {
        "gradients": {count: gradient(worker, rows[:count]) for count in ROW_COUNTS},
        "values": {count: split(worker.compute_values, rows[:count]) for count in ROW_COUNTS},
        "metrics": [worker.update_critic(rows[:count], count).meta_info["metrics"] for count in ROW_COUNTS],
        "weights": copied(whole_state(worker.model)),
    }
    save(worker, saved)
    results |= after_loading(CriticWorker(model_dir, config()), saved, "own")
    if other.exists():
        results |= after_loading(CriticWorker(model_dir, config()), other, "others")
    return results


def lora_results(model_dir: str, rows: DataProto, saved: Path, other: Path) -> dict[str, Any]:
    saved, other = saved / "lora", other / "lora"
    saved.mkdir(exist_ok=True)
    adapted = config(model={"lora": {"rank": 3}})
    worker = ActorWorker(model_dir, adapted)
    results: dict[str, Any] = {"reference_before": split(worker.compute_reference_log_prob, rows)}
    results["metrics"] = [worker.update_actor(rows[:count], count).meta_info["metrics"] for count in ROW_COUNTS]
    results["reference"] = split(worker.compute_reference_log_prob, rows)
    results["log_probs"] = split(worker.compute_log_prob, rows)
    results["weights"] = copied(worker.weights())
    results["state"] = copied(whole_state(worker.model))
    save(worker, saved)
    results |= after_loading(ActorWorker(model_dir, adapted), saved, "own")
    if other.exists():
        results |= after_loading(ActorWorker(model_dir, adapted), other, "others")
    return results


def refusal(model_dir: str, rows: DataProto) -> str:
    """What is said of a gradient that is not finite, whoever computed it."""
    worker = ActorWorker(model_dir, config())
    poisoned = copy.deepcopy(rows)
    poisoned.batch["advantages"][0] = float("nan")
    try:
        worker.update_actor(poisoned, 0)
    except FloatingPointError as error:
        return str(error)
    return "it was accepted"


def save(worker: ActorWorker | CriticWorker, checkpoint: Path) -> None:
    """As a checkpoint is made: everything was written when all ranks have."""
    worker.save(checkpoint)
    asyncio.run(worker.saved())
    gathered("saved")


def after_loading(worker: ActorWorker | CriticWorker, checkpoint: Path, whose: str) -> dict[str, Any]:
    worker.load(checkpoint)
    return {
        f"{whose}_weights": copied(whole_state(worker.model)),
        f"{whose}_optimiser": copied(whole_tensors(worker.optimiser.tensors())),
    }


def gradient(worker: ActorWorker | CriticWorker, rows: DataProto) -> Tensor:
    worker._accumulate_gradient(rows, MetricSums())
    gradients = whole_tensors({name: weight.grad for name, weight in worker.optimiser.weights.items()})
    worker.model.zero_grad(set_to_none=True)
    return flat(gradients)


def split(method: Callable[[DataProto], DataProto], rows: DataProto) -> dict[str, Tensor]:
    """As a group calls it: each rank its share, the answers back in the order of the rows."""
    divided = shares(rows, rank_count())
    answers = gathered(method(rows[divided[rank()]]))
    order = torch.tensor([row for share in divided for row in share]).argsort()
    names = list(answers[0].batch.keys())
    return {name: torch.cat([answer.batch[name] for answer in answers])[order] for name in names}


def flat(tensors: dict[str, Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors.values()]) if tensors else torch.zeros(0)


def copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def parameter_size(parameter: Tensor) -> int:
    """What of it lives in this process."""
    return parameter.to_local().numel() if hasattr(parameter, "to_local") else parameter.numel()


def main() -> None:
    which, count, model_dir, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{place / 'meeting'}", rank=which, world_size=count)
    rows = DataProto.load_from_disk(place / "rows.pkl")
    results = everything(model_dir, str(place / "learnt"), rows, place / "several", place / "one")
    torch.save(results, place / f"rank-{which}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
