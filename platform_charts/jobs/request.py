"""What somebody asks of a cluster, and what is known of that cluster; everything that is rendered follows from these."""

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
        team: whose namespace, queue and account it has.
        settings_yaml: the whole training settings; the pods find them as they stand at /etc/training/settings.yaml.
        workers: ranks of the run.
        gpus_per_worker: 1, or 0 for a run on CPUs, which goes to the system nodes.
        cpus_per_worker: cores of a rank and of its loader processes.
        group: the GPU node group; None takes the smallest that fits.
        priority: class of its place in the queue.
        deadline_hours: time from admission by the queue within which one attempt has to end; a restart begins anew.
        start_hours: the part of it in which the pods have to be up and the job to run.
        restarts: how often the job is begun anew, on a new cluster, after its driver has failed, for whatever reason, or
            its pods were not up in `start_hours`; it goes on from its newest checkpoint. Ranks and nodes that are lost
            cost none of these: the driver replaces them (`scale.max_restarts` of the settings, counted by each driver).
            Neither does Kueue's taking the nodes back. A job that passes its deadline is not begun anew.
        keep_days: time for which the RayJob, its status and its driver's log stay after its end; see
            `training.cluster.retention`, which removes it.
        run: name of a `train` job's run, which is its folder's; None takes the job's own name.
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
        """Refuse what no cluster could serve.

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
            raise SettingsError(f"run={self.run!r} is no name of a run: it must match {_RUN.pattern}")
        if self.command is None and self.kind == "conformance":
            raise SettingsError("kind=conformance has no program of its own", remedy="give the command it shall run")
        if self.command == ():
            raise SettingsError("command is empty", remedy="give a program and its arguments, or leave it out")


@dataclass(frozen=True, kw_only=True)
class ClusterRequest:
    """A team's long-lived Ray cluster, whose workers come and go with the demand.

    Attributes:
        name: name of the RayCluster, unique in its namespace.
        team: whose namespace and account it has.
        min_workers: pods kept while nobody asks for any; a GPU node costs money all the time.
        max_workers: largest number of pods. Each holds one GPU, or none.
        gpus_per_worker: 1 or 0.
        cpus_per_worker: cores of a pod.
        group: the GPU node group; None takes the smallest that fits.
        priority: class of its pods.
        idle_minutes: time after which the autoscaler takes an idle worker away.
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
        """Refuse what no cluster could serve.

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
            f"name={name!r} ({len(name)} characters) is no name for a job or cluster",
            remedy=f"use a-z, 0-9 and -, begin with a letter, end with a letter or digit, at most {longest} characters",
        )


def _check_at_least(field: str, value: int, smallest: int) -> None:
    if value < smallest:
        raise SettingsError(f"{field}={value} must be at least {smallest}")


def _check_worker(gpus: int, cpus: int) -> None:
    if gpus not in {0, 1}:
        raise SettingsError(f"gpus_per_worker={gpus} must be 0 or 1", remedy="give a rank for each GPU: raise workers")
    _check_at_least("cpus_per_worker", cpus, 1)


def _check_hours(field: str, hours: float) -> None:
    # One second is the API's smallest step, and its seconds are 32-bit integers.
    if not 1 / 3600 <= hours <= 2**31 / 3600 - 1:
        raise SettingsError(f"{field}={hours} must be at least a second and less than 68 years, in hours")
