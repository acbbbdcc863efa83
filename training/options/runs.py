"""The options of the commands that look at runs and jobs, or stop them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import option
from training.options.cluster import ClusterOptions, DetachOptions
from training.options.given import RootOptions, RunOptions
from training.options.vms import RayFileOptions
from training.profiling.request import MOST_STEPS


@dataclass(frozen=True, kw_only=True)
class JobsOptions(RayFileOptions, ClusterOptions, RootOptions):
    """Options of `jobs`."""


@dataclass(frozen=True, kw_only=True)
class LogsOptions(RayFileOptions, ClusterOptions, RunOptions):
    """Options of `logs`."""

    rank: int | None = option("print the log of this rank", at_least=0)
    pod: str | None = option("on a cluster: print the log of this pod of the job")
    days: float = option("how far back to search the logs of pods that are gone", 14.0, metavar="N", at_least=0)


@dataclass(frozen=True, kw_only=True)
class PostmortemOptions(ClusterOptions, RunOptions):
    """Options of `postmortem`."""

    out: Path | None = option(
        "file of the page (default: in the run's folder; of a job .local/postmortem/JOB.html)", metavar="FILE"
    )


@dataclass(frozen=True, kw_only=True)
class CostOptions(ClusterOptions, RunOptions):
    """Options of `cost`."""


@dataclass(frozen=True, kw_only=True)
class StopOptions(DetachOptions, RayFileOptions, ClusterOptions, RunOptions):
    """Options of `stop`."""


@dataclass(frozen=True, kw_only=True)
class ResizeOptions(ClusterOptions, RunOptions):
    """Options of `resize`."""

    workers: int = option("most workers to continue with", ..., metavar="N", at_least=1)


@dataclass(frozen=True, kw_only=True)
class MonitorOptions(RunOptions):
    """Options of `monitor`."""

    once: bool = option("print the current state and exit", default=False)


@dataclass(frozen=True, kw_only=True)
class MonitorUpOptions(RootOptions):
    """Options of `monitor-up`."""

    port: int = option("port of Prometheus on loopback (default: 9090 if it is free)", 0, at_least=0, at_most=65535)


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(ClusterOptions, RunOptions):
    """Options of `profile`."""

    steps: int = option("steps to profile (default: 10)", 10, at_least=1, at_most=MOST_STEPS)
    memory: bool = option("also write a snapshot of each GPU's memory", default=False)


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """Options of `ui`."""

    port: int = option("port on loopback (default: an ephemeral port)", 0, at_least=0, at_most=65535)
