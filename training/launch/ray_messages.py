"""What Ray prints in the middle of the driver's output, although the driver wants no logs of workers."""

from __future__ import annotations

from typing import Any

from ray._private import worker

_WORKER_DIED = "A worker died or was killed while executing a task"

_print = worker.print_to_stdstream


def leave_out_lost_workers() -> None:
    """Let Ray no longer print a paragraph for each worker that dies.

    The run says so itself, with the rank, the step and the place, and keeps Ray's reason: see `training.launch.ray_state`.
    """
    worker.print_to_stdstream = _print_others


def _print_others(data: dict[str, Any], ignore_prefix: bool) -> None:  # noqa: FBT001 - Ray's signature
    if not data["lines"][0].startswith(_WORKER_DIED):
        _print(data, ignore_prefix)
