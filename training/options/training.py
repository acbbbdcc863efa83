"""The options of the commands that train, or prepare that."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import argument, option
from training.options.cluster import ClusterOptions, FollowOptions, ScheduleOptions, SubmissionOptions
from training.options.given import ChangeOptions, OwnCodeOptions, RunOptions, SettingsOptions
from training.options.vms import RayFileOptions


@dataclass(frozen=True, kw_only=True)
class NewOptions:
    """A new project."""

    project: str | None = argument("name of a folder to write beside the checkout, or the path of a folder elsewhere")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(FollowOptions, RayFileOptions, SubmissionOptions, ScheduleOptions, OwnCodeOptions, SettingsOptions):
    """Options of `train`."""

    print_config: bool = option("print all settings and exit", default=False)


@dataclass(frozen=True, kw_only=True)
class DataOptions(OwnCodeOptions, SettingsOptions):
    """Options of `data`. The samples of a run are read as the run would; with `--model` or `--config` its step is measured too."""

    samples: int | None = option("read this many samples of each split, chosen at random (default: all)", at_least=1)
    gpus: int = option("GPUs of the run whose loader processes are computed", 1, metavar="N", at_least=1)
    rate: float | None = option("samples per second that one GPU trains on (default: a step is measured)", at_least=0)
    out: Path | None = option("picture of some samples to write (default: .local/data/DATASET.png)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(RayFileOptions, FollowOptions, SubmissionOptions, OwnCodeOptions, ChangeOptions, RunOptions):
    """Options of `resume`."""


@dataclass(frozen=True, kw_only=True)
class JobYamlOptions(SubmissionOptions, OwnCodeOptions, SettingsOptions):
    """Options of `job`."""

    env: str = option("environment of the stack", ...)
    out: str | None = option("file to write (default: standard output)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class SchedulesOptions(ClusterOptions):
    """Options of `schedules`."""

    env: str = option("environment of the stack", ...)


@dataclass(frozen=True, kw_only=True)
class UnscheduleOptions(SchedulesOptions):
    """Options of `unschedule`."""

    name: str | None = argument("name of the schedule")
    pause: bool = option("keep the schedule, but start no job; `train --schedule` starts it again", default=False)
