"""Requests for jobs and clusters, and the stack they are rendered for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from infra.spec.catalog import Catalog
from infra.spec.cluster_names import LONGEST_JOB_NAME, SESSION_PREFIX, Priority
from infra.spec.errors import SettingsError
from infra.spec.outputs import StackOutputs
from infra.spec.release import ReleaseManifest
from platform_charts.jobs.code import PackedCode

JobKind = Literal["train", "search", "benchmark", "conformance", "session", "run"]

_LONGEST_KEEP_DAYS = 3650

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_RUN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")  # as in the trainer's settings: run.name
_BY_DIGEST = re.compile(r"(?:[^\s@:/]+(?::\d+)?/)?(?:[^\s@:/]+/)*[^\s@:/]+@sha256:[0-9a-f]{64}")
DERIVED_IMAGE_REMEDY = "derive one from this release: `make image FROM=folder ENV=…` pushes it and prints IMAGE=…"


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A job that runs once and goes away.

    Attributes:
        name: name of the RayJob, unique in its namespace.
        kind: which program of the image runs.
        team: the team whose namespace, queue and service account it uses.
        settings_yaml: the complete training settings, mounted in the pods as /etc/training/settings.yaml.
        workers: ranks of the run, or of each trial of a search; of an elastic run, the most.
        sizes: the numbers of ranks that an elastic run may have, ascending, of which `workers` is the last; empty for a fixed one.
        gpus_per_worker: 1, or 0 for a run on CPUs, which runs on the head nodes.
        cpus_per_worker: cores of a rank and of its loader processes.
        loader_cpus: those of the loader processes among them, on CPUs; Ray would place another rank on them.
        worker_groups: groups of that many ranks at the same time: more than 1 only in a search, whose trials need not be near
            each other.
        driver_memory_mib: memory of the head beyond what the driver of a run needs.
        group: the GPU node group, or several, separated by commas, in the order in which the queue tries them; None takes the
            cheapest that fits.
        gpu_model: a GPU model in lower case, instead of a group: Kueue chooses among the groups that have it, in the
            platform team's order.
        spot: with `gpu_model`, the job may run on spot nodes too.
        priority: its priority in the queue.
        deadline_hours: time from admission by the queue within which an attempt has to end; each attempt has its own.
        start_hours: the part of it within which the pods have to be up and the job running.
        restarts: how often the job is retried, on a new cluster, after its driver has failed for any reason, or its pods
            were not up in `start_hours`; it resumes from its newest checkpoint. Lost ranks and nodes do not count: the
            driver replaces them (`scale.max_restarts` of the settings, counted by each driver). Neither does preemption
            by Kueue. A job that exceeds its deadline is not retried. None is the kind's default, see `retries`.
        keep_days: how long the RayJob, with its status and its driver's log, is kept after its end;
            `training.cluster.retention` deletes it.
        run: name of the run of a `train` job, or of a `search`, and of its folder; None uses the job's name.
        needs_cache: the run copies its dataset to the NVMe disks of its nodes.
        needs_float8: the run computes in 8-bit floating-point numbers, which not all GPUs have.
        image: image of its pods, by digest, in the stack's repository of the trainer; None is the release's trainer image.
        command: what runs instead of the kind's own program; `conformance` and `session` have none and need it.
        shell_command: the command line of a `run` job, which a shell runs on every worker pod; other kinds have none.
        code: code of the user's own, for every pod; a session has a folder of its own instead.
    """

    name: str
    kind: JobKind
    team: str
    settings_yaml: str
    workers: int
    gpus_per_worker: int
    cpus_per_worker: int
    sizes: tuple[int, ...] = ()
    loader_cpus: int = 0
    worker_groups: int = 1
    driver_memory_mib: int = 0
    group: str | None = None
    gpu_model: str | None = None
    spot: bool = False
    priority: Priority = "normal"
    deadline_hours: float = 24
    start_hours: float = 1
    restarts: int | None = None
    keep_days: float = 14
    run: str | None = None
    needs_cache: bool = False
    needs_float8: bool = False
    image: str | None = None
    command: tuple[str, ...] | None = None
    shell_command: str | None = None
    code: PackedCode | None = None

    def __post_init__(self) -> None:
        """Refuse values that no cluster can serve.

        Raises:
            SettingsError: names the field, its value and its rule.
        """
        _check_name(self.name, longest=LONGEST_JOB_NAME)
        _check_at_least("workers", self.workers, 1)
        _check_at_least("loader_cpus", self.loader_cpus, 0)
        _check_at_least("worker_groups", self.worker_groups, 1)
        _check_at_least("driver_memory_mib", self.driver_memory_mib, 0)
        _check_worker(self.gpus_per_worker, self.cpus_per_worker)
        _check_choice(self.group, self.gpu_model, self.gpus_per_worker, spot=self.spot)
        _check_at_least("restarts", self.retries, 0)
        for field in ("deadline_hours", "start_hours"):
            _check_hours(field, getattr(self, field))
        if not 0 <= self.keep_days <= _LONGEST_KEEP_DAYS:
            raise SettingsError(f"keep_days={self.keep_days} must be between 0 and {_LONGEST_KEEP_DAYS}, in days")
        if self.run is not None and not _RUN.fullmatch(self.run):
            raise SettingsError(f"invalid run={self.run!r}: it must match {_RUN.pattern}")
        _check_kind(self)
        assert not self.sizes or (self.kind == "train" and self.sizes == tuple(sorted({*self.sizes, self.workers})))
        assert self.code is None or self.kind != "session", "a session's code is a shared folder"
        _check_image(self.image)
        if self.command == ():
            raise SettingsError("command is empty", remedy="give a program and its arguments, or leave it out")

    @property
    def resumes(self) -> bool:
        """Whether the driver goes on where an earlier one has ended: of a run or a search."""
        return self.kind in {"train", "search"} and self.command is None

    @property
    def ranks(self) -> int:
        """Ranks of all worker groups."""
        return self.workers * self.worker_groups

    @property
    def groups(self) -> tuple[str, ...]:
        """The node groups that are named."""
        return () if self.group is None else tuple(self.group.split(","))

    @property
    def has_choice(self) -> bool:
        """Whether the queue chooses the group."""
        return self.gpu_model is not None or len(self.groups) > 1

    @property
    def retries(self) -> int:
        """`restarts`, or by default 1 for a run or a search and 0 for another program.

        A head whose node is drained, repaired or rebalanced away stops its run, whose driver saves and exits: without a retry
        that ends the job. Programs that resume nothing would only start from the beginning.
        """
        if self.restarts is not None:
            return self.restarts
        return int(self.resumes)


def timed_name(what: str, *, now: datetime) -> str:
    """`<what>-<yyyymmdd-hhmmss>`, reduced to the characters of a job's name."""
    slug = re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")
    slug = re.sub(r"^[^a-z]+", "", slug) or "run"
    stamp = f"-{now:%Y%m%d-%H%M%S}"
    return slug[: LONGEST_JOB_NAME - len(stamp)].rstrip("-") + stamp


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


def _check_kind(request: JobRequest) -> None:
    kind, name = request.kind, request.name
    if request.command is None and kind in {"conformance", "session"}:
        raise SettingsError(f"kind={kind} has no program of its own", remedy="give the command to run")
    if kind != "search" and request.worker_groups > 1:
        raise SettingsError(f"worker_groups={request.worker_groups} with kind={kind}: only a search has several")
    if kind == "session" and not name.startswith(SESSION_PREFIX):
        raise SettingsError(f"name={name} of a session must begin with {SESSION_PREFIX}")
    if kind != "session" and name.startswith(SESSION_PREFIX):
        raise SettingsError(
            f"name={name}: only the names of sessions begin with {SESSION_PREFIX}, whose pods their team can connect to",
            remedy="choose another name",
        )
    if (kind == "run") != bool(request.shell_command):
        raise SettingsError(
            f"kind={kind} with shell_command={request.shell_command!r}",
            remedy="a job of kind `run` needs a command line, and no other has one",
        )


def _check_image(image: str | None) -> None:
    if image is not None and not _BY_DIGEST.fullmatch(image):
        raise SettingsError(
            f"image={image} is not a digest reference, REPOSITORY@sha256:… without a tag, which could be moved",
            remedy=DERIVED_IMAGE_REMEDY,
        )


def _check_at_least(field: str, value: int, smallest: int) -> None:
    if value < smallest:
        raise SettingsError(f"{field}={value} must be at least {smallest}")


def _check_worker(gpus: int, cpus: int) -> None:
    if gpus not in {0, 1}:
        raise SettingsError(f"gpus_per_worker={gpus} must be 0 or 1", remedy="use one rank per GPU: raise workers")
    _check_at_least("cpus_per_worker", cpus, 1)


def _check_choice(group: str | None, gpu_model: str | None, gpus: int, *, spot: bool) -> None:
    if gpu_model is not None and group is not None:
        raise SettingsError(
            f"group={group} and gpu_model={gpu_model} are mutually exclusive",
            remedy="name the group, or name the GPU model and leave the group to the queue",
        )
    if gpu_model is not None and gpus == 0:
        raise SettingsError(
            f"gpu_model={gpu_model} with gpus_per_worker=0: the job has no GPU",
            remedy="leave the GPU model out, or set gpus_per_worker=1",
        )
    if spot and gpu_model is None:
        raise SettingsError(
            "spot=true without gpu_model: it adds spot groups to those that have the model",
            remedy="name the GPU model; a job that names a spot group runs on spot nodes anyway",
        )


def _check_hours(field: str, hours: float) -> None:
    # One second is the API's smallest step, and its seconds are 32-bit integers.
    if not 1 / 3600 <= hours <= 2**31 / 3600 - 1:
        raise SettingsError(f"{field}={hours} must be at least a second and less than 68 years, in hours")
