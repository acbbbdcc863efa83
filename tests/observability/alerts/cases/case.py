"""The type of a case, and short forms for series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Series = Mapping[str, str]
"""Values of series in promtool's notation, one a minute from the start; no values remove a series."""


RUN_LABELS = {"namespace": "vision", "training_job": "first", "run": "r1"}
RUN_TEXT = "run r1 of job vision/first"
GPU_LABELS = {"node": "n1", "gpu": "3"}
GPU_TEXT = "GPU 3 of node n1"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An alert's unit test.

    Attributes:
        at: minute at which the alert fires.
        series: which make it fire.
        labels: labels of the alert, without its name and severity; those of a run unless it says others.
        summary: text of the alert.
        silent: changes of the series with which it stays silent, by what they show.
        resolves: it stops when all series vanish; not so where their absence is the alert.
    """

    at: int
    series: Series
    labels: Mapping[str, str] = field(default_factory=lambda: RUN_LABELS)
    summary: str
    silent: Mapping[str, Series]
    resolves: bool = field(default=True)


def of_run(name: str, /, **labels: str) -> str:
    """A metric of the trainer, of one run."""
    return series(f"ray_rtp_train_{name}", **RUN_LABELS, **labels)


def of_gpu(name: str, /, **labels: str) -> str:
    """A metric of DCGM exporter, of one GPU."""
    return series(f"DCGM_{name}", **GPU_LABELS, modelName="H100", **labels)


def series(name: str, /, **labels: str) -> str:
    """A series in promtool's notation."""
    pairs = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{pairs}}}"


def flat(value: float, minutes: int) -> str:
    """The same value for some minutes."""
    return f"{value}+0x{minutes}"


def rising(step: float, minutes: int) -> str:
    """A counter that begins at 0 and grows by `step` every minute."""
    return f"0+{step}x{minutes}"


def later(first: int, values: str) -> str:
    """A series that begins after some minutes."""
    return f"_x{first} {values}"
