"""The clock of a step: marks on the timeline of the device that computes it, and the seconds between them.

A CPU has done its work when a call returns. A GPU has not, so its marks are CUDA events; they are read after the step has synchronized
with the device anyway, and cost no synchronization of their own.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

import torch


class StepClock(ABC):
    """Marks moments of one step; a mark is the number that `mark` returns."""

    @abstractmethod
    def restart(self) -> None:
        """Forget the marks: a step begins."""

    @abstractmethod
    def mark(self) -> int:
        """Mark the moment at which the device has done what it has been given so far."""

    @abstractmethod
    def seconds(self, first: int, last: int) -> float:
        """Seconds from one mark to a later one, which the device has reached."""

    @abstractmethod
    def seconds_since(self, mark: int) -> float:
        """Seconds from a mark, which the device has reached, to now."""


class HostClock(StepClock):
    """Of a CPU."""

    def __init__(self) -> None:
        self._marks: list[float] = []

    def restart(self) -> None:
        """Forget the marks."""
        self._marks.clear()

    def mark(self) -> int:
        """Mark this moment."""
        self._marks.append(time.perf_counter())
        return len(self._marks) - 1

    def seconds(self, first: int, last: int) -> float:
        """Seconds between two marks."""
        return self._marks[last] - self._marks[first]

    def seconds_since(self, mark: int) -> float:
        """Seconds from a mark to now."""
        return time.perf_counter() - self._marks[mark]


class CudaClock(StepClock):
    """Of the current CUDA stream. Its events are used again in every step."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._marks = 0
        self._began = 0.0

    def restart(self) -> None:
        """Forget the marks."""
        self._marks = 0

    def mark(self) -> int:
        """Record an event in the current stream."""
        if self._marks == 0:
            self._began = time.perf_counter()
        if self._marks == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        self._events[self._marks].record()
        self._marks += 1
        return self._marks - 1

    def seconds(self, first: int, last: int) -> float:
        """Seconds between two events; what the GPU waits for between them counts."""
        milliseconds: float = self._events[first].elapsed_time(self._events[last])
        return milliseconds / 1000

    def seconds_since(self, mark: int) -> float:
        """Seconds of this process since the first mark, less those of the GPU up to this one.

        The two timelines agree at the first mark but for what the step before has left in the stream: its update of the weights.
        """
        return max(0.0, time.perf_counter() - self._began - self.seconds(0, mark))


def step_clock(device: torch.device) -> StepClock:
    """The clock of a device."""
    return CudaClock() if device.type == "cuda" else HostClock()
