"""The default process group of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from training.launch.task import RankPlace
from training.network import interface_towards


@contextmanager
def process_group(place: RankPlace, *, gpu: bool, timeout_seconds: float) -> Iterator[None]:
    """Initialize the default process group for the duration of the block; a world of one needs none.

    Sets Gloo's interface, loopback if all ranks are on this machine; its default is the one the hostname resolves to.
    """
    if place.world == 1:
        yield
        return
    interface = "lo" if place.local_world == place.world else interface_towards(place.master_address)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=f"tcp://{place.master_address}:{place.master_port}",
        rank=place.rank,
        world_size=place.world,
        timeout=timedelta(seconds=timeout_seconds),
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
