"""The connection to Ray: a cluster that runs, or one on this machine for the time of a run."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from openmanus_rl.config.schema import ClusterConfig
from openmanus_rl.errors import UserError

LOCAL = "local"
AUTO = "auto"

CONNECT_SECONDS = 10.0
"""How long the head of a cluster has to answer."""


@contextmanager
def connected(cluster: ClusterConfig) -> Iterator[None]:
    """Ray for the time of the block. A connection that is there already is used, and left as it is."""
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with _own_signal_handlers():
        try:
            if cluster.address == LOCAL:
                _start_here(cluster)
            else:
                _join(cluster.address)
            yield
        finally:
            ray.shutdown()


def _start_here(cluster: ClusterConfig) -> None:
    """As many CPUs as the pools ask for, also where the machine has fewer: then they share them."""
    for name, pool in cluster.pools.items():
        if pool.nodes > 1:
            raise UserError(
                f"cluster.pools.{name}.nodes={pool.nodes}, but cluster.address=local is one machine.",
                f"Set cluster.pools.{name}.ranks_per_node, or join a cluster with cluster.address=auto.",
            )
    wanted = sum(pool.ranks * pool.cpus_per_rank for pool in cluster.pools.values())
    ray.init(
        address=LOCAL,
        num_cpus=max(os.cpu_count() or 1, int(wanted) + 1),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _join(address: str) -> None:
    address = os.environ.get("RAY_ADDRESS", AUTO) if address == AUTO else address
    try:
        if address != AUTO:
            _check_that_somebody_listens(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except OSError as error:
        raise UserError(
            f"there is no Ray cluster at cluster.address={address}: {error}",
            "Start one with `ray start --head`, or set cluster.address=local.",
        ) from error


def _check_that_somebody_listens(address: str) -> None:
    """Ray itself would try for many minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if not port.isdigit():
        raise UserError(f"cluster.address={address} is not an address.", "Write host:port, auto or local.")
    socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Ray puts handlers of its own in place; afterwards those that were there count again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
