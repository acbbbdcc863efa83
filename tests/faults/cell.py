"""A cell of the matrix: a fault, and the run that it happens to: a small CNN on digits, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.faults.run import FaultedRun, run_here
from tests.training.runs import small_settings
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


EVERY_STEPS: Final = 20
"""Interval of the checkpoints."""

Sections = dict[str, dict[str, Any]]

_TWO_RANKS: Final[Sections] = {
    # As the models that fail (`tests.training.faults.models`).
    "model": {"name": "simple_cnn", "options": {"dropout": 0.25}},
    "loop": {"epochs": 20, "log_sample_ids": True},
    "schedule": {"name": "constant"},
    "checkpoint": {"every_steps": EVERY_STEPS},
    "scale": {"launcher": "ray", "workers": 2},
}


def two_ranks(**sections: dict[str, Any]) -> TrainingSettings:
    """Two ranks of Ray Train, 420 steps; `sections` override that key by key."""
    merged = {name: {**given, **sections.get(name, {})} for name, given in _TWO_RANKS.items()}
    return small_settings(**{**sections, **merged})


def alone(**sections: dict[str, Any]) -> TrainingSettings:
    """One rank without Ray."""
    return two_ranks(**{**sections, "scale": {"launcher": "plain", "workers": 1, **sections.get("scale", {})}})


def fixed(settings: TrainingSettings) -> Settings:
    """Settings that name no file."""
    return lambda _: settings


def failing(model: str, *, step: int, rank: int = 0, **sections: dict[str, Any]) -> Settings:
    """Two ranks with a model of `tests.training.faults.models` that fails once, in a step of one rank."""

    def make(files: Path) -> TrainingSettings:
        options = {"step": step, "rank": rank, "trace": str(files / "failed")}
        return two_ranks(model={"name": f"tests.training.faults.models:{model}", "options": options}, **sections)

    return make
