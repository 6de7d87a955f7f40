"""What actor and critic updates share: mini-batches in a seeded order, and metrics over all that was computed."""

from collections import defaultdict
from collections.abc import Iterator

import torch

from openmanus_rl.config.schema import OptimConfig
from openmanus_rl.protocol import DataProto
from openmanus_rl.workers.parallel import gathered


def mini_batches(data: DataProto, config: OptimConfig, seed: int) -> Iterator[DataProto]:
    """`epochs` passes over the episodes in a shuffled order, each in `mini_batches` parts of like size.

    The segments of an episode stay together, so that a mean per episode is one over whole episodes. Every rank makes
    the same ones.
    """
    episode_index = data.batch["episode_index"]
    episodes = torch.unique(episode_index)
    for epoch in range(config.epochs):
        generator = torch.Generator().manual_seed(seed * 1_000 + epoch)
        order = episodes[torch.randperm(len(episodes), generator=generator)]
        for part in order.tensor_split(min(config.mini_batches, len(order))):
            yield data[torch.isin(episode_index, part)]


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
