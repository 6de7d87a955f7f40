"""What actor and critic updates share: mini-batches in a seeded order, and metrics over all that was computed."""

from collections import defaultdict
from collections.abc import Iterator

import torch

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.parallel import gathered


def mini_batches(data: DataProto, config: OptimConfig, seed: int) -> Iterator[DataProto]:
    """`epochs` passes over the episodes, each in `mini_batches` parts of like size. Every rank makes the same ones.

    Groups are shuffled, and the episodes within each; so most groups are whole in one part, where the beginnings that
    their episodes share are computed once. The segments of an episode stay together, so that a mean per episode is one
    over whole episodes.
    """
    episode_index = data.batch["episode_index"]
    for epoch in range(config.epochs):
        generator = torch.Generator().manual_seed(seed * 1_000 + epoch)
        order = _shuffled_by_groups(episode_index, data.batch["group_index"], generator)
        for part in order.tensor_split(min(config.mini_batches, len(order))):
            yield data[torch.isin(episode_index, part)]


def _shuffled_by_groups(episode_R: torch.Tensor, group_R: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every episode once: groups in a shuffled order, and in each group its episodes in one."""
    episodes_E, row_episode_R = torch.unique(episode_R, return_inverse=True)
    group_E = torch.empty_like(episodes_E).scatter_(0, row_episode_R, group_R)
    order_E = torch.randperm(len(episodes_E), generator=generator)
    groups_G, place_E = torch.unique(group_E[order_E], return_inverse=True)
    turn_E = torch.randperm(len(groups_G), generator=generator)[place_E]
    return episodes_E[order_E[turn_E.argsort(stable=True)]]


class MetricSums:
    """Sums over micro-batches and the means they become, and largest values."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._counts: dict[str, float] = defaultdict(float)
        self._peaks: dict[str, float] = defaultdict(float)

    def add(self, name: str, value: torch.Tensor | float, count: float) -> None:
        """`value` is a sum over `count` things."""
        self._sums[name] += float(value)
        self._counts[name] += count

    def peak(self, name: str, value: torch.Tensor | float) -> None:
        """`value`, which is not below 0, counts if it is the largest."""
        self._peaks[name] = max(self._peaks[name], float(value))

    def means(self) -> dict[str, float]:
        """Means and peaks over what all ranks have added. All ranks must call."""
        everything = MetricSums()
        for sums, counts, peaks in gathered((dict(self._sums), dict(self._counts), dict(self._peaks))):
            for name, total in sums.items():
                everything.add(name, total, counts[name])
            for name, value in peaks.items():
                everything.peak(name, value)
        means = {name: total / max(everything._counts[name], 1e-12) for name, total in everything._sums.items()}
        return means | everything._peaks
