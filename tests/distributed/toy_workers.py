"""Workers that do next to nothing, to see how a group calls them."""

import os
import signal
import time

import torch
import torch.distributed as dist

from openmanus_rl.errors import UserError
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.dispatch import Dispatch, dispatch


class Toy:
    """Remembers its calls."""

    def __init__(self, start: int) -> None:
        self.total = start
        self.calls: list[str] = []

    @dispatch(Dispatch.SPLIT)
    def double(self, data: DataProto, times: int = 1) -> DataProto:
        """Twice each number, `times` times."""
        self.calls.append(f"double {len(data)}")
        answer = {"doubled": data.batch["number"] * 2**times}
        return DataProto.from_dict(answer, meta_info={"metrics": {"rows": len(data)}})

    @dispatch(Dispatch.SPLIT)
    def nothing_but_metrics(self, data: DataProto) -> DataProto:
        return DataProto(meta_info={"metrics": {"rows": len(data)}})

    @dispatch(Dispatch.SPLIT)
    def forget_a_row(self, data: DataProto) -> DataProto:
        return data[1:]

    @dispatch(Dispatch.SAME)
    def add(self, amount: int) -> int:
        self.calls.append(f"add {amount}")
        self.total += amount
        return self.total

    @dispatch(Dispatch.RANK0)
    def report(self, prefix: str) -> str:
        self.calls.append("report")
        return f"{prefix} {self.total}"

    def private(self) -> None:
        """Not marked."""


class Ranked:
    """Knows its rank and talks to the others."""

    def __init__(self, base: float = 0.0) -> None:
        self.base = base
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    @dispatch(Dispatch.SPLIT)
    def process(self, data: DataProto) -> DataProto:
        """Where each row was computed."""
        here = {"pid": torch.full((len(data),), os.getpid()), "rank": torch.full((len(data),), self.rank)}
        return DataProto.from_dict({**here, "row": data.batch["row"]})

    @dispatch(Dispatch.SAME)
    def threads(self) -> tuple[int, str]:
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]

    @dispatch(Dispatch.SAME)
    def sum_of_ranks(self) -> tuple[float, int]:
        """Every rank adds its own; and how many there are."""
        total = torch.tensor([self.base + self.rank + 1.0])
        dist.all_reduce(total)
        return total.item(), dist.get_world_size()

    @dispatch(Dispatch.SAME)
    def overwrite(self, weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Write to what arrived, and send it back."""
        for name, tensor in weights.items():
            if tensor.layout is torch.strided:
                weights[name] = tensor.add_(1)
        return weights

    @dispatch(Dispatch.SAME)
    def fail_on(self, rank: int) -> str:
        if self.rank == rank:
            raise ValueError(f"rank {rank} was asked to fail")
        return "fine"

    @dispatch(Dispatch.SAME)
    def refuse(self) -> None:
        raise UserError("this model has no head", "Give one that has.")

    @dispatch(Dispatch.SAME)
    def answer_unpicklable(self) -> object:
        return (number for number in range(3))

    @dispatch(Dispatch.SAME)
    def exchange_but_fail_on(self, rank: int) -> None:
        """One rank raises while the others wait for it."""
        self.fail_on(rank)
        dist.all_reduce(torch.ones(1))

    @dispatch(Dispatch.SAME)
    def exchange_but_die_on(self, rank: int) -> None:
        """One rank's process ends while the others wait for it."""
        if self.rank == rank:
            time.sleep(0.5)
            os.kill(os.getpid(), 9)
        dist.all_reduce(torch.ones(1))

    @dispatch(Dispatch.SAME)
    def stand_still(self) -> None:
        """The process is there and does nothing more, as on a machine that hangs."""
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)  # another thread may take the signal: this one must not answer before that has stopped all
