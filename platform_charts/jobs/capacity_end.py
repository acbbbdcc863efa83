"""Whether a job ends before its nodes do: a Capacity Block is bought for fixed days, and is not extended for a job."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from infra.spec.errors import RefusedError
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.request import JobRequest, Target


def refuse_beyond_capacity(request: JobRequest, target: Target, *, now: datetime) -> None:
    """Refuse a job whose deadline is after the end of the Capacity Block that it names.

    Only jobs that name a Capacity Block run on one: see `placement`. The deadline is counted as if the queue admitted the
    job at once, and for its first attempt. A job that waits longer, or is restarted, may reach the end of its nodes; it
    has saved a checkpoint by then, because EC2's notice ends pods like any other.

    Args:
        request: the job.
        target: the stack.
        now: the time, with its zone.

    Raises:
        RefusedError: names the deadline, the block's end, and the longest deadline that fits.
    """
    group = next((one for one in target.outputs.gpu_groups if one.name == request.group), None)
    if group is None or group.drain_before is None:
        return
    left = group.drain_before - now
    if timedelta(hours=request.deadline_hours) > left:
        raise RefusedError(_refusal(request, group, group.drain_before, now), remedy=_remedy(left))


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
