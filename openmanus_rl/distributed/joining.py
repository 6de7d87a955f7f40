"""How the processes of a pool become one `torch.distributed` group: a meeting point, and a network they all have."""

import os
from dataclasses import dataclass
from datetime import timedelta

import psutil
import torch.distributed

COLLECTIVE_TIMEOUT = timedelta(minutes=10)
"""How long a rank waits for the others in one exchange."""


@dataclass(frozen=True)
class MeetingPoint:
    """Where rank 0 waits for the others."""

    address: str
    port: int
    ranks: int
    backend: str
    """`gloo`, or `cpu:gloo,cuda:nccl` where the ranks have GPUs."""


def open_meeting_point(address: str, ranks: int, backend: str) -> tuple[torch.distributed.Store, MeetingPoint]:
    """Called on rank 0: a store on a free port of this machine."""
    store = torch.distributed.TCPStore(address, 0, ranks, True, COLLECTIVE_TIMEOUT, wait_for_workers=False)
    return store, MeetingPoint(address, store.port, ranks, backend)


def join(point: MeetingPoint, rank: int, own_address: str, store: torch.distributed.Store | None) -> None:
    """Called on every rank at once; rank 0 passes the store that it opened."""
    interface = interface_of(own_address)
    if interface is not None:
        # Without it gloo takes the address that the host's name stands for, which other machines may not reach.
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    if store is None:
        store = torch.distributed.TCPStore(point.address, point.port, point.ranks, False, COLLECTIVE_TIMEOUT)
    torch.distributed.init_process_group(
        point.backend, store=store, rank=rank, world_size=point.ranks, timeout=COLLECTIVE_TIMEOUT
    )


def interface_of(address: str) -> str | None:
    """The network interface of this machine that has the address: `lo` for 127.0.0.1."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(own.address == address for own in addresses):
            return name
    return None
