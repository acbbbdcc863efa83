"""Which Capacity Blocks a job may run on: a block is bought for fixed days, and is not extended for a job."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta

from infra.spec.errors import RefusedError
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.placement import gpu_model
from platform_charts.jobs.request import JobRequest, Target


def lasting_capacity(request: JobRequest, target: Target, *, now: datetime) -> Target:
    """The stack without the Capacity Blocks that end before the job's deadline.

    Only jobs that name a Capacity Block or its GPU model run on one: see `placement`. The deadline is counted as if the
    queue admitted the job at once, and for its first attempt. A job that waits longer, or is restarted, may reach the end
    of its nodes; it has saved a checkpoint by then, because EKS drains the nodes 40 minutes before the block ends.

    Args:
        request: the job.
        target: the stack.
        now: the time, with its zone.

    Raises:
        RefusedError: the job names such a block, or a GPU model that only such blocks have; with the deadline, the block's
            end, and the longest deadline that fits.
    """
    ending = [group for group in target.outputs.gpu_groups if _ends_first(group, request, now)]
    lasting = tuple(group for group in target.outputs.gpu_groups if group not in ending)
    for group in ending:
        model = gpu_model(group, target.catalog)
        is_named = group.name in request.groups
        is_only = model == request.gpu_model and all(gpu_model(one, target.catalog) != model for one in lasting)
        if (is_named or is_only) and group.drain_before is not None:
            raise RefusedError(
                _refusal(request, group, group.drain_before, now), remedy=_remedy(group.drain_before - now)
            )
    return replace(target, outputs=target.outputs.model_copy(update={"gpu_groups": lasting}))


def without_blocks(target: Target) -> Target:
    """The stack without Capacity Blocks, for jobs that are submitted again and again."""
    lasting = tuple(group for group in target.outputs.gpu_groups if group.drain_before is None)
    return replace(target, outputs=target.outputs.model_copy(update={"gpu_groups": lasting}))


def _ends_first(group: GpuGroupOutput, request: JobRequest, now: datetime) -> bool:
    return group.drain_before is not None and timedelta(hours=request.deadline_hours) > group.drain_before - now


def _refusal(request: JobRequest, group: GpuGroupOutput, ends: datetime, now: datetime) -> str:
    if ends <= now:
        return f"group {group.name} is a Capacity Block that had to be empty by {_minute(ends)}; it is {_minute(now)}"
    deadline = now + timedelta(hours=request.deadline_hours)
    return (
        f"job {request.name} may run for {request.deadline_hours:g} h, until {_minute(deadline)} at the earliest; "
        f"group {group.name} is a Capacity Block that has to be empty by {_minute(ends)}"
    )


def _remedy(left: timedelta) -> str:
    tenths = math.floor(left / timedelta(hours=0.1))
    shorter = f"--deadline-hours {tenths / 10:g} at most, " if tenths > 0 else ""
    return f"{shorter}another --group, or a longer block in the environment's file"


def _minute(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="minutes")
