"""What the wall time of a run is spent on. The names follow ml-goodput-measurement's classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

TimeClass: TypeAlias = Literal[
    "productive",
    "data",
    "communication",
    "checkpoint",
    "evaluation",
    "other",
    "startup",
    "detection",
    "restart",
    "lost",
    "finish",
    "idle",
    "queue",
]

CLASSES: tuple[TimeClass, ...] = get_args(TimeClass)
"""All classes: those of the training loop, then those of a run around it."""

LOOP_CLASSES: tuple[TimeClass, ...] = CLASSES[:6]
"""What the time of the training loop is counted as, and what a restart can turn into lost time."""

MEANINGS: Mapping[TimeClass, str] = {
    "productive": "forward and backward pass and optimizer of the steps in the weights; backward includes the overlapping all-reduce",
    "data": "the loop waited for the next batch",
    "communication": "rank 0 had its own gradients and waited for its peers': slower ranks, and what of the all-reduce does not overlap",
    "checkpoint": "the loop waited for the copy of a checkpoint",
    "evaluation": "validation between epochs, and the test at the end",
    "other": "the rest of the loop: reporting, hooks, the change of epochs",
    "startup": "from the start of the run until its ranks were ready for the first time",
    "detection": "from the last reported step, or what followed it, until the failure of a rank was known",
    "restart": "from a known failure, from a resume, or from the last step before a change of workers, until the ranks were ready again",
    "lost": "steps that a restart repeated, with all that belonged to them; and a step that a forced stop abandoned",
    "finish": "after the last step: the last checkpoint, the export of the weights, the end of the workers",
    "idle": "between the end of a driver, or its last event if it was killed, and the next resume",
    "queue": "from the submission of a job to the start of its driver: the cluster's queue, nodes and pods; on a cluster only",
}
"""Each class in words."""
