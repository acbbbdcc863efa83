"""What a run's folder says about the run in which a rank was killed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from observability.runlog import Evaluated, Event, RunEnded, Step, TrainingStarted, read_all, select
from training.conformance.facts import TrainingFacts
from training.conformance.victim import killed_rank
from training.rundir import RunDirectory

_WINDOW = 5
"""Steps whose mean loss is compared: single batches vary."""


def training_facts(run: RunDirectory) -> TrainingFacts:
    """The facts, of a run that has started to train.

    Raises:
        ValueError: it has made no step; with the reason that its log has.
    """
    events = read_all(run.path)
    steps, starts, ends = select(events, Step), select(events, TrainingStarted), select(events, RunEnded)
    message = ends[-1].message if ends else ""
    if not steps or not starts:
        raise ValueError(message or "the run has made no step")
    tests = [one for one in select(events, Evaluated) if one.split == "test"]
    return TrainingFacts(
        status=ends[-1].status if ends else "",
        ranks=starts[-1].world,
        steps=steps[-1].step,
        total_steps=starts[-1].total_steps,
        first_loss=_mean_loss(steps[:_WINDOW]),
        last_loss=_mean_loss(steps[-_WINDOW:]),
        killed_rank=killed_rank(run),
        starts=tuple(one.start_step for one in starts),
        resumed_loss=_resumed_loss(events),
        test_accuracy=tests[-1].metrics.get("accuracy") if tests else None,
        message=message,
    )


def _resumed_loss(events: Sequence[Event]) -> float | None:
    """Mean loss of the first steps after the last restart; None without a restart."""
    starts = [place for place, event in enumerate(events) if isinstance(event, TrainingStarted)]
    steps = select(events[starts[-1] :], Step) if len(starts) > 1 else []
    return _mean_loss(steps[:_WINDOW]) if steps else None


def _mean_loss(steps: Sequence[Step]) -> float:
    return math.fsum(one.loss for one in steps) / len(steps)
