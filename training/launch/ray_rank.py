"""The code that runs in a Ray Train worker: the agent of a rank.

Workers do not import `ray_trainer`, which needs Ray Train's controller.
"""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.train import get_context

from training.allocator import configure_allocator
from training.config.schema import AllocatorSettings
from training.launch.agent.agent import Agent, folder_in_memory
from training.launch.agent.messages import Hello
from training.launch.pod_lock import holding_the_pod
from training.launch.ray_client import ADDRESS


def serve_rank(config: dict[str, Any]) -> None:
    """The training function: serves the driver of a run until it is over.

    Args:
        config: as `training.launch.ray_group` makes it.
    """
    context = get_context()
    # Before the rank's process imports torch, which reads them.
    os.environ.update(config["environment"])
    configure_allocator(AllocatorSettings.model_validate(config["allocator"]))
    os.environ[ADDRESS] = ray.get_runtime_context().gcs_address
    hello = Hello(
        worker=worker_name(config["group"], context.get_world_rank()),
        node=ray.get_runtime_context().get_node_id(),
        host="127.0.0.1" if config["is_loopback"] else str(ray.util.get_node_ip_address()),
        gpu=context.get_local_rank(),  # Ray Train lets the workers of a group on a node see each other's GPUs
    )
    host, port = config["driver"]
    with holding_the_pod(), folder_in_memory() as folder:
        Agent(hello, memory=folder / "state").serve((host, port), bytes.fromhex(config["key"]))


def worker_name(group: str, rank: int) -> str:
    """Name of a worker, from that of its group and its rank in it. One that Ray starts in its place has the same."""
    return f"{group}/{rank}"
