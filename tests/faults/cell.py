"""A cell of the matrix: a fault, and the run that it happens to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.run import FaultedRun, run_here
from training.config.schema import TrainingSettings

Inject = Callable[[FaultedRun], float]
"""Waits for its moment in a run that trains, lets the fault happen, and returns its Unix time."""

Settings = Callable[[Path], TrainingSettings]
"""Makes the settings of a run, of which some name files in a folder of its own."""

Check = Callable[[FaultedRun], None]


def _nothing(_run: FaultedRun) -> None:
    """Do or check nothing."""


@dataclass(frozen=True)
class Fault:
    """What happens.

    Attributes:
        what: in a few words.
        when: its moment.
        cause: of the failure that the driver is to see (`training.recovery.causes`); empty if none.
    """

    what: str
    when: str
    cause: str = ""


@dataclass(frozen=True)
class Cell:
    """A fault and a run.

    Attributes:
        name: for the command line and the table.
        fault: what happens.
        settings: of the run.
        inject: lets it happen.
        reference: settings of the run without the fault; None for the same.
        status: exit status of the driver that it happens to, negative for a signal; 0 if that driver goes on to the end.
        repair: what somebody does before the same command resumes the run, if it has ended.
        most_lost: steps that may be lost; None for those since the newest checkpoint.
        check: asserts what else this cell has to show, while its machines are there.
        run_on: the machines.
    """

    name: str
    fault: Fault
    settings: Settings
    inject: Inject
    reference: Settings | None = None
    status: int = 0
    repair: Check = _nothing
    most_lost: int | None = None
    check: Check = _nothing
    run_on: Callable[[TrainingSettings], AbstractContextManager[FaultedRun]] = run_here
