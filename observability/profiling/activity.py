"""What a rank's device and CPU did in its profiled steps, by kind.

On a GPU these are the definitions of Holistic Trace Analysis (https://hta.readthedocs.io): kernels of NCCL are communication, other kernels
are computation, copies and fills of memory are kept apart. On a CPU the operators of the threads that run the step are computation, and the
ranges of Gloo's threads are communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from observability.profiling.intervals import Span, intersection, union
from observability.profiling.trace_file import TraceEvent

SMALL_OPERATOR: Final = 10e-6
"""Seconds of an operator's own time below which a CPU mostly dispatches it. The median of all its calls counts: what else runs on the
machine interrupts a few of them for milliseconds."""

_ON_CPU: Final = frozenset({"cpu_op", "cuda_runtime", "cuda_driver"})
_ON_DEVICE: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_COLLECTIVES_OF_GLOO: Final = "gloo:"
_LAUNCHES_COLLECTIVE: Final = "c10d::"
_ENGINE: Final = "autograd::engine::"
"""Ranges of the autograd engine: each is around an operator of the backward pass and the hooks after it, in which DDP may wait for a
collective (PowerSGD on CPUs)."""

_MICRO: Final = 1e-6


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """An operator or kernel: how often it ran, and its own time in seconds, without that of operators within it."""

    name: str
    count: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Activity:
    """What happened within the given times; all times in seconds.

    Attributes:
        on_gpu: the rank computes on a GPU.
        compute: computation.
        communication: collectives, from the first byte to the last, waits for peers included.
        memcpy: copies and fills of a GPU's memory.
        cpu: when the CPU ran operators or launched kernels.
        small_seconds: own time of operators that mostly take less than `SMALL_OPERATOR`, on a CPU.
        operators: all operators or kernels, the longest first.
        collectives: of each step, the durations of its collectives in order of their starts.
    """

    on_gpu: bool
    compute: list[Span]
    communication: list[Span]
    memcpy: list[Span]
    cpu: list[Span]
    small_seconds: float
    operators: list[OperatorTime]
    collectives: list[list[float]]


def sort_activity(events: Iterable[TraceEvent], *, steps: Sequence[Span], computing: Sequence[Span]) -> Activity:
    """Sort the events of a trace by kind.

    Args:
        events: of one rank, in microseconds.
        steps: when the steps were, in microseconds since the same base.
        computing: when a CPU did their computation: operators of a loader in the rank's process and of a checkpoint are none. What a GPU
            does then is left of the step before, and counts.
    """
    kept = [event for event in events if _is_of_interest(event)]
    on_device = [event for event in kept if event.category in _ON_DEVICE]
    on_gpu = bool(on_device)
    times = steps if on_gpu else computing
    if on_gpu:
        compute = [one for one in on_device if one.category == "kernel" and not _is_nccl(one)]
        collectives = [one for one in on_device if _is_nccl(one)]
    else:
        compute = [
            one for one in kept if one.category == "cpu_op" and not one.name.startswith((_LAUNCHES_COLLECTIVE, _ENGINE))
        ]
        collectives = [one for one in kept if one.name.startswith(_COLLECTIVES_OF_GLOO)]
    own = _own_times(compute, times)
    small = [] if on_gpu else [seconds for seconds in own.values() if median(seconds) < SMALL_OPERATOR]
    return Activity(
        on_gpu=on_gpu,
        compute=_within(compute, times),
        communication=_within(collectives, steps),
        memcpy=_within([one for one in on_device if one.category != "kernel"], times),
        cpu=_within([one for one in kept if one.category in _ON_CPU], times),
        small_seconds=sum(map(sum, small)),
        operators=_totals(own),
        collectives=[_durations(collectives, step) for step in steps],
    )


def _is_of_interest(event: TraceEvent) -> bool:
    return event.category in _ON_CPU | _ON_DEVICE or event.name.startswith(_COLLECTIVES_OF_GLOO)


def _is_nccl(event: TraceEvent) -> bool:
    return event.category == "kernel" and "nccl" in event.name.lower()


def _durations(collectives: Sequence[TraceEvent], step: Span) -> list[float]:
    within = [one for one in collectives if step[0] <= one.start < step[1]]
    return [(one.end - one.start) * _MICRO for one in sorted(within, key=lambda one: one.start)]


def _within(events: Iterable[TraceEvent], times: Sequence[Span]) -> list[Span]:
    common = intersection(union((event.start, event.end) for event in events), times)
    return [(start * _MICRO, end * _MICRO) for start, end in common]


def _own_times(events: Sequence[TraceEvent], times: Sequence[Span]) -> dict[str, list[float]]:
    """By name, the seconds of each event that starts within the times, less those of the events within it."""
    by_thread: defaultdict[str, list[TraceEvent]] = defaultdict(list)
    for event in events:
        by_thread[event.thread].append(event)
    found: defaultdict[str, list[float]] = defaultdict(list)
    for thread in by_thread.values():
        thread.sort(key=lambda event: (event.start, -event.end))
        own = [event.end - event.start for event in thread]
        around: list[int] = []  # the events that the current one is within, the innermost last
        for index, event in enumerate(thread):
            while around and thread[around[-1]].end <= event.start:
                around.pop()
            if around:
                own[around[-1]] -= event.end - event.start
            around.append(index)
        for event, microseconds in zip(thread, own, strict=True):
            if any(start <= event.start < end for start, end in times):
                found[event.name].append(max(0.0, microseconds) * _MICRO)
    return found


def _totals(own: Mapping[str, Sequence[float]]) -> list[OperatorTime]:
    totals = [OperatorTime(name=name, count=len(seconds), seconds=sum(seconds)) for name, seconds in own.items()]
    return sorted(totals, key=lambda one: -one.seconds)
