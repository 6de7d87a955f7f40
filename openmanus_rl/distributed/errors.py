"""What can go wrong with workers elsewhere: one raised, or its process is gone."""


class WorkerError(RuntimeError):
    """A worker's method raised. It would raise again: this is a mistake in code or data, not in the cluster."""

    def __init__(self, role: str, method: str, rank: int, node: str, summary: str, remote_traceback: str) -> None:
        super().__init__(
            f"{role}.{method} failed on rank {rank} (node {node}): {summary}\n\nThere:\n{remote_traceback.rstrip()}"
        )
        self.role = role
        self.method = method
        self.rank = rank
        self.node = node
        self.remote_traceback = remote_traceback


class RankLost(RuntimeError):
    """The process of a rank, or its whole node, is gone. Its pool has to be made again."""

    def __init__(self, pool: str, rank: int, node: str, reason: str) -> None:
        super().__init__(f"rank {rank} of the pool {pool} (node {node}) is lost: {reason}")
        self.pool = pool
        self.rank = rank
        self.node = node
        self.reason = reason
