"""What happened in a training program, in its own order, and what a fault cost by that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from observability.event_log import Decoder, Event

MARKS = "marks.jsonl"
"""Name of a log of marks."""


@dataclass(frozen=True, kw_only=True)
class Mark(Event):
    """Something that happened.

    Attributes:
        what: `start`, the ranks are about to train; `step`, a step ended on rank 0; `failure`, a failure became known.
        step: that the ranks start from, or that ended.
    """

    kind: ClassVar[str] = "mark"
    what: Literal["start", "step", "failure"]
    step: int = 0


decode = Decoder(Mark)
"""Decodes a line of a log of marks."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What a fault cost.

    Attributes:
        detect: seconds until the failure was known; None if nothing failed.
        next_step: seconds until the first step of the new attempt ended.
        lost_steps: steps that had ended, and were trained again.
    """

    detect: float | None
    next_step: float
    lost_steps: int

    def describe(self) -> str:
        """For progress: `noticed after 0.05 s, next step after 1.20 s, 0 steps lost`."""
        noticed = "" if self.detect is None else f"noticed after {self.detect:.2f} s, "
        return f"{noticed}next step after {self.next_step:.2f} s, {self.lost_steps} steps lost"


def newest_step(marks: Sequence[Mark]) -> int:
    """Number of the newest step that ended; 0 before the first."""
    return next((mark.step for mark in reversed(marks) if mark.what == "step"), 0)


def recovery(marks: Sequence[Mark], *, fault: float) -> Recovery | None:
    """What a fault cost; None until a new attempt has ended its first step.

    Args:
        marks: of the program, in its order.
        fault: Unix time of the fault.
    """
    start = next((n for n, mark in enumerate(marks) if mark.what == "start" and mark.time > fault), None)
    if start is None:
        return None
    step = next((mark for mark in marks[start:] if mark.what == "step"), None)
    if step is None:
        return None
    known = next((mark.time for mark in marks if mark.what == "failure" and mark.time > fault), None)
    return Recovery(
        detect=None if known is None else known - fault,
        next_step=step.time - fault,
        lost_steps=max(0, newest_step(marks[:start]) - marks[start].step),
    )


def steps_per_second(marks: Sequence[Mark], *, begin: float, end: float) -> float:
    """Steps that the run was further at the end than at the beginning; steps that were trained again count once.

    Args:
        marks: of the program, in its order.
        begin: Unix time.
        end: Unix time.
    """
    first, last = (newest_step([mark for mark in marks if mark.time <= time]) for time in (begin, end))
    return (last - first) / (end - begin)
