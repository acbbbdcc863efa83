"""A result of a trial as Ray Tune's schedulers see it, and a trial's configuration in Ray Tune. Imports no Ray."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from training.config.schema import OptionValue
from tune.events import TrialReported

TRIAL: Final = "trial"
EPOCH: Final = "epoch"
STEP: Final = "step"
SECONDS: Final = "seconds"
PARAMETERS: Final = "parameters"
"""Parameters of the model, which a search may keep small."""

FAILURE: Final = "failure"
"""Why a trial has failed, in the result that ends it. An error instead would cost its actor, and the ranks with it."""

CAUSE: Final = "cause"
"""What the failure is a matter of, in the same result."""

Cause = Literal["trial", "objective", "folder"]
"""The trial itself; an objective that it does not report; a folder that cannot be written, e.g. on a full disk."""


def values_of(config: Mapping[str, Any]) -> dict[str, OptionValue]:
    """The values of a trial, from its configuration, which holds its name too."""
    return {key: value for key, value in config.items() if key != TRIAL}


def result_of(report: TrialReported) -> dict[str, Any]:
    """A recorded evaluation as the trial has reported it."""
    return {
        TRIAL: report.trial,
        EPOCH: report.epoch,
        STEP: report.step,
        SECONDS: report.worker_seconds,
        **report.metrics,
    }


def failed_result(trial: str, why: str, *, metrics: Iterable[str], cause: Cause = "trial") -> dict[str, Any]:
    """The result of a trial that has failed. Ray Tune refuses one without the search's metrics, and ends a trial that is `done`."""
    return {TRIAL: trial, FAILURE: why, CAUSE: cause, **dict.fromkeys(metrics, math.nan), "done": True}
