"""What runs inside a Ray Train worker: this module and no other of the launcher is imported there."""

from __future__ import annotations

import os
import socket
from typing import Any

_ADDRESS = "RTP_MASTER_ADDRESS"
_PORT = "RTP_MASTER_PORT"


def free_address(*, loopback: bool) -> tuple[str, int]:
    """An address of this worker's host that its peers can reach, and a port that is free there now."""
    import ray  # noqa: PLC0415

    host = "127.0.0.1" if loopback else str(ray.util.get_node_ip_address())
    with socket.socket() as probe:
        probe.bind((host, 0))
        return host, int(probe.getsockname()[1])


def set_meeting_point(address: str, port: int) -> None:
    """Tell this worker where rank 0 will listen."""
    os.environ[_ADDRESS], os.environ[_PORT] = address, str(port)


def train_rank(config: dict[str, Any]) -> dict[str, Any]:
    """The train function: one rank of the task in `config`; returns its outcome as plain types."""
    from ray.train import get_context  # noqa: PLC0415

    from training.launch.task import RankPlace, RankTask  # noqa: PLC0415
    from training.worker import run_rank  # noqa: PLC0415

    context = get_context()
    place = RankPlace(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        local_rank=context.get_local_rank(),
        local_world=context.get_local_world_size(),
        master_address=os.environ[_ADDRESS],
        master_port=int(os.environ[_PORT]),
    )
    return run_rank(RankTask.load(config), place).dump()
