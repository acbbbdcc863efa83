"""Divides the time of the profiled steps of every rank, and finds who waits for whom.

A collective ends on all ranks at once, and lasts longest on the rank that came first. Its shortest duration over the ranks is what the
transfer took; what it took longer on a rank is that rank's wait for the last one. Only durations are compared, so the clocks of the ranks
may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from observability.profiling.activity import Activity, OperatorTime
from observability.profiling.intervals import Span, difference, length, union
from observability.profiling.window import RankSteps

_KEPT_OPERATORS = 5


@dataclass(frozen=True, kw_only=True)
class RankTime:
    """Where the time of a rank's mean step goes. `data`, `checkpoint`, `compute`, `transfer`, `waiting` and `overhead` add up to `step`.

    Attributes:
        rank, machine: which rank, and where.
        step: seconds of the mean step.
        data: wait for data.
        checkpoint: delay by checkpoints.
        compute: computation, on the GPU if there is one.
        transfer: collectives that no computation hides, without the wait for slower ranks.
        waiting: wait for ranks that come later to a collective.
        overhead: the rest. The host keeps the device waiting: Python, dispatch of small operators, launches of kernels, copies.
        communication: all collectives; what is neither transfer nor waiting is hidden behind computation.
        idle: the device does nothing at all, whatever it waits for.
        operators: operators of the CPU, or kernels of the GPU, in a step.
        dispatch: the part of `overhead` that is dispatch: operators too short to be more than that, or on a GPU, in which the CPU runs and
            launches operators while the GPU has nothing to do.
        last_share: share of the steps in whose collectives it waited least, that is, to which it came last.
        top: the operators that took longest, over all profiled steps.
        peak_bytes: most memory of tensors on the GPU; 0 on a CPU.
    """

    rank: int
    machine: str
    on_gpu: bool
    step: float
    data: float
    checkpoint: float
    compute: float
    transfer: float
    waiting: float
    overhead: float
    communication: float
    idle: float
    operators: float
    dispatch: float
    last_share: float
    top: list[OperatorTime]
    peak_bytes: int = 0

    @property
    def own(self) -> float:
        """Seconds of the mean step that no other rank is to blame for."""
        return self.step - self.waiting


def divide_time(ranks: Mapping[int, tuple[RankSteps, Activity]]) -> list[RankTime]:
    """Divide the time of each rank's steps; the waits are found from the ranks that are given."""
    order = sorted(ranks)
    waits = wait_seconds([ranks[rank][1].collectives for rank in order])
    last = [min(range(len(order)), key=lambda index: step[index]) for step in waits]
    return [
        _rank_time(
            *ranks[rank],
            wait=sum(step[index] for step in waits),
            last_share=last.count(index) / len(last) if last else 0.0,
        )
        for index, rank in enumerate(order)
    ]


def wait_seconds(collectives: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """Seconds that each rank waited in its collectives for the last rank to come, per step and rank.

    Args:
        collectives: durations per rank, step and collective. A step without any, or in which the ranks did not record equally many, is left
            out.
    """
    return [
        [sum(waited) for waited in zip(*(_waits(durations) for durations in zip(*step, strict=True)), strict=True)]
        for step in zip(*collectives, strict=False)
        if len({len(durations) for durations in step}) == 1 and step[0]
    ]


def _waits(durations: Sequence[float]) -> list[float]:
    """How much longer a collective took on each rank than on the last one to come."""
    return [seconds - min(durations) for seconds in durations]


def _rank_time(steps: RankSteps, activity: Activity, *, wait: float, last_share: float) -> RankTime:
    count = len(steps.steps)
    data_spans = _data_spans(steps) if activity.on_gpu else []
    busy = union([*activity.compute, *activity.communication])
    total = sum(step.seconds for step in steps.steps)
    data = sum(step.data_seconds for step in steps.steps)
    if activity.on_gpu:  # what the GPU does meanwhile hides the wait
        data = min(data, length(difference(data_spans, busy)))
    checkpoint = sum(step.checkpoint_seconds for step in steps.steps)
    compute = max(0.0, length(activity.compute) - activity.small_seconds)
    exposed = length(difference(activity.communication, activity.compute))
    waiting = min(wait, exposed)
    overhead = max(0.0, total - data - checkpoint - compute - exposed)
    return RankTime(
        rank=steps.rank,
        machine=steps.host,
        on_gpu=activity.on_gpu,
        step=total / count,
        data=data / count,
        checkpoint=checkpoint / count,
        compute=compute / count,
        transfer=(exposed - waiting) / count,
        waiting=waiting / count,
        overhead=overhead / count,
        communication=length(activity.communication) / count,
        idle=max(0.0, total - length(union([*busy, *activity.memcpy]))) / count,
        operators=sum(one.count for one in activity.operators) / count,
        dispatch=(length(difference(activity.cpu, busy)) if activity.on_gpu else activity.small_seconds) / count,
        last_share=last_share,
        top=activity.operators[:_KEPT_OPERATORS],
        peak_bytes=steps.peak_bytes,
    )


def _data_spans(steps: RankSteps) -> list[Span]:
    return union((step.started - step.data_seconds, step.started) for step in steps.steps)
