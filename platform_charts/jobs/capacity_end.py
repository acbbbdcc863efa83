"""Whether a job ends before its nodes do: a Capacity Block is bought for fixed days, and nobody extends it for a job."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from infra.spec.errors import RefusedError
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.request import JobRequest, Target


def refuse_beyond_capacity(request: JobRequest, target: Target, *, now: datetime) -> None:
    """Refuse a job whose deadline lies behind the end of the Capacity Block that it names.

    No other job gets one: see `placement`. The deadline is counted as if the queue let the job in at once, and for its
    first attempt. What waits longer, or begins anew, runs into the end of its nodes with a checkpoint of the time before:
    EC2's notice ends the pods as any other does.

    Args:
        request: the job.
        target: the stack.
        now: the time, with its zone.

    Raises:
        RefusedError: names the deadline, the block's end, and the longest deadline that would do.
    """
    group = next((one for one in target.outputs.gpu_groups if one.name == request.group), None)
    if group is None or group.drain_before is None:
        return
    left = group.drain_before - now
    if timedelta(hours=request.deadline_hours) > left:
        raise RefusedError(_refusal(request, group, group.drain_before, now), remedy=_remedy(left))


def _refusal(request: JobRequest, group: GpuGroupOutput, ends: datetime, now: datetime) -> str:
    if ends <= now:
        return f"group {group.name} is a Capacity Block that had to be empty at {_minute(ends)}; it is {_minute(now)}"
    deadline = now + timedelta(hours=request.deadline_hours)
    return (
        f"job {request.name} may take {request.deadline_hours:g} h, that is until {_minute(deadline)} at least; "
        f"group {group.name} is a Capacity Block that has to be empty by {_minute(ends)}"
    )


def _remedy(left: timedelta) -> str:
    tenths = math.floor(left / timedelta(hours=0.1))
    shorter = f"--deadline-hours {tenths / 10:g} at most, " if tenths > 0 else ""
    return f"{shorter}another --group, or a longer block in the environment's file"


def _minute(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="minutes")
