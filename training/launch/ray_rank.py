"""The code that runs in a Ray Train worker. Workers do not import `ray_trainer`, which needs Ray Train's controller."""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.train import get_context

from training.evidence import stack_on_death
from training.launch.task import RankPlace, RankTask
from training.network import free_port
from training.worker import run_rank

_ADDRESS = "RTP_MASTER_ADDRESS"
_PORT = "RTP_MASTER_PORT"


def free_address(*, loopback: bool) -> tuple[str, int]:
    """An address of this host that the other workers can reach, and a free port."""
    host = "127.0.0.1" if loopback else str(ray.util.get_node_ip_address())
    return host, free_port(host)


def set_rendezvous(address: str, port: int) -> None:
    """Set the address on which rank 0 of this worker's process group will listen."""
    os.environ[_ADDRESS], os.environ[_PORT] = address, str(port)


def train_rank(config: dict[str, Any]) -> dict[str, Any]:
    """The training function: runs one rank of the task in `config` and returns its outcome as JSON types."""
    context = get_context()
    place = RankPlace(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        local_rank=context.get_local_rank(),
        local_world=context.get_local_world_size(),
        master_address=os.environ[_ADDRESS],
        master_port=int(os.environ[_PORT]),
    )
    task = RankTask.load(config)
    with stack_on_death(task.run_directory, attempt=task.attempt, rank=place.rank):
        return run_rank(task, place).dump()
