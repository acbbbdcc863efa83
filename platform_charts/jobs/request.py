"""Requests for jobs and clusters, and the stack they are rendered for."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from infra.spec.catalog import Catalog
from infra.spec.cluster_names import Priority
from infra.spec.errors import SettingsError
from infra.spec.outputs import StackOutputs
from infra.spec.release import ReleaseManifest

JobKind = Literal["train", "benchmark", "conformance"]

LONGEST_JOB_NAME = 47
"""KubeRay names the job's cluster NAME-abcde, and that cluster's services NAME-abcde-serve-svc: 63 less 10 less 6."""

LONGEST_CLUSTER_NAME = 53
"""A service's name has at most 63 characters, and KubeRay appends up to `-serve-svc` to the cluster's."""

_LONGEST_KEEP_DAYS = 3650

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_RUN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")  # as in the trainer's settings: run.name


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A job that runs once and goes away.

    Attributes:
        name: name of the RayJob, unique in its namespace.
        kind: which program of the image runs.
        team: the team whose namespace, queue and service account it uses.
        settings_yaml: the complete training settings, mounted in the pods as /etc/training/settings.yaml.
        workers: ranks of the run.
        gpus_per_worker: 1, or 0 for a run on CPUs, which runs on the system nodes.
        cpus_per_worker: cores of a rank and of its loader processes.
        group: the GPU node group; None takes the cheapest that fits.
        priority: its priority in the queue.
        deadline_hours: time from admission by the queue within which an attempt has to end; each attempt has its own.
        start_hours: the part of it within which the pods have to be up and the job running.
        restarts: how often the job is retried, on a new cluster, after its driver has failed for any reason, or its pods
            were not up in `start_hours`; it resumes from its newest checkpoint. Lost ranks and nodes do not count: the
            driver replaces them (`scale.max_restarts` of the settings, counted by each driver). Neither does preemption
            by Kueue. A job that exceeds its deadline is not retried.
        keep_days: how long the RayJob, with its status and its driver's log, is kept after its end;
            `training.cluster.retention` deletes it.
        run: name of a `train` job's run and of its folder; None uses the job's name.
        command: what runs instead of the kind's own program; `conformance` has none and needs it.
    """

    name: str
    kind: JobKind
    team: str
    settings_yaml: str
    workers: int
    gpus_per_worker: int
    cpus_per_worker: int
    group: str | None = None
    priority: Priority = "normal"
    deadline_hours: float = 24
    start_hours: float = 1
    restarts: int = 0
    keep_days: float = 14
    run: str | None = None
    command: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse values that no cluster can serve.

        Raises:
            SettingsError: names the field, its value and its rule.
        """
        _check_name(self.name, longest=LONGEST_JOB_NAME)
        _check_at_least("workers", self.workers, 1)
        _check_worker(self.gpus_per_worker, self.cpus_per_worker)
        _check_at_least("restarts", self.restarts, 0)
        for field in ("deadline_hours", "start_hours"):
            _check_hours(field, getattr(self, field))
        if not 0 <= self.keep_days <= _LONGEST_KEEP_DAYS:
            raise SettingsError(f"keep_days={self.keep_days} must be between 0 and {_LONGEST_KEEP_DAYS}, in days")
        if self.run is not None and not _RUN.fullmatch(self.run):
            raise SettingsError(f"invalid run={self.run!r}: it must match {_RUN.pattern}")
        if self.command is None and self.kind == "conformance":
            raise SettingsError("kind=conformance has no program of its own", remedy="give the command to run")
        if self.command == ():
            raise SettingsError("command is empty", remedy="give a program and its arguments, or leave it out")


@dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """A team's long-lived Ray cluster, whose workers scale with demand.

    Attributes:
        name: name of the RayCluster, unique in its namespace.
        team: the team whose namespace it uses.
        min_workers: pods that are kept without demand; their GPU nodes cost money all the time.
        max_workers: largest number of pods. Each holds one GPU, or none.
        gpus_per_worker: 1 or 0.
        cpus_per_worker: cores of a pod.
        group: the GPU node group; None takes the cheapest that fits.
        priority: priority of its pods.
        idle_minutes: time after which Ray's autoscaler removes an idle worker.
    """

    name: str
    team: str
    min_workers: int
    max_workers: int
    gpus_per_worker: int
    cpus_per_worker: int
    group: str | None = None
    priority: Priority = "normal"
    idle_minutes: float = 10

    def __post_init__(self) -> None:
        """Refuse values that no cluster can serve.

        Raises:
            SettingsError: names the field, its value and its rule.
        """
        _check_name(self.name, longest=LONGEST_CLUSTER_NAME)
        _check_at_least("min_workers", self.min_workers, 0)
        _check_at_least("max_workers", self.max_workers, max(1, self.min_workers))
        _check_worker(self.gpus_per_worker, self.cpus_per_worker)
        if not (math.isfinite(self.idle_minutes) and self.idle_minutes >= 1):
            raise SettingsError(f"idle_minutes={self.idle_minutes} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The cluster a request is rendered for, and the release both belong to; see `infra.spec.outputs.check_outputs`."""

    outputs: StackOutputs
    release: ReleaseManifest
    catalog: Catalog


def _check_name(name: str, *, longest: int) -> None:
    if len(name) > longest or not _NAME.fullmatch(name):
        raise SettingsError(
            f"invalid name={name!r} of a job or cluster ({len(name)} characters)",
            remedy=f"use a-z, 0-9 and -, begin with a letter, end with a letter or digit, at most {longest} characters",
        )


def _check_at_least(field: str, value: int, smallest: int) -> None:
    if value < smallest:
        raise SettingsError(f"{field}={value} must be at least {smallest}")


def _check_worker(gpus: int, cpus: int) -> None:
    if gpus not in {0, 1}:
        raise SettingsError(f"gpus_per_worker={gpus} must be 0 or 1", remedy="use one rank per GPU: raise workers")
    _check_at_least("cpus_per_worker", cpus, 1)


def _check_hours(field: str, hours: float) -> None:
    # One second is the API's smallest step, and its seconds are 32-bit integers.
    if not 1 / 3600 <= hours <= 2**31 / 3600 - 1:
        raise SettingsError(f"{field}={hours} must be at least a second and less than 68 years, in hours")
