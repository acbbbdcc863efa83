"""The cluster that a command works on, and how a job is queued, followed and scheduled there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from infra.spec.command_line import given_flags, option
from training.errors import SettingsError

_CLUSTER = "on a cluster"
_SCHEDULE = "on a schedule"

_CLUSTER_GROUPS = (_CLUSTER, _SCHEDULE)
"""Titles of the groups of options that have no effect on this machine."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """The cluster and team; without `--env` this machine."""

    TITLE: ClassVar = _CLUSTER

    env: str | None = option("environment of the stack")
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    kubeconfig: Path | None = option("kubeconfig (default: $KUBECONFIG, else AWS credentials)", metavar="FILE")
    team: str | None = option("team of the job; required if the stack has several")


@dataclass(frozen=True, kw_only=True)
class SubmissionOptions(ClusterOptions):
    """How a job is queued and kept."""

    TITLE: ClassVar = ClusterOptions.TITLE

    group: str | None = option(
        "GPU node group, or several with commas, of which the queue takes the first with room (default: the cheapest that fits)"
    )
    gpu_model: str | None = option("GPU model, e.g. a10g, instead of a group: the queue chooses one", metavar="MODEL")
    spot: bool | None = option("with --gpu-model: allow spot nodes, after other capacity")
    priority: Literal["low", "normal", "high"] | None = option("priority in the queue (default: normal)")
    deadline_hours: float | None = option("time limit from admission, in hours", metavar="H")
    restarts: int | None = option(
        "times a failed driver is retried on a new cluster (default: 1, of `run` 0)", metavar="N", at_least=0
    )
    keep_days: float | None = option("days to keep the job after its end", metavar="D")
    image: str | None = option(
        "image of the pods, by digest, as `make image FROM=…` prints it (default: the release's)", metavar="REF"
    )


@dataclass(frozen=True, kw_only=True)
class DetachOptions:
    """Whether to wait."""

    TITLE: ClassVar = ClusterOptions.TITLE

    detach: bool = option("return without waiting for the job", default=False)


@dataclass(frozen=True, kw_only=True)
class FollowOptions(DetachOptions):
    """How a job is followed."""

    TITLE: ClassVar = ClusterOptions.TITLE

    stop_on_interrupt: bool = option("Ctrl-C stops the job (default: it keeps running)", default=False)


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """When a job is submitted again and again."""

    TITLE: ClassVar = _SCHEDULE

    schedule: str | None = option('times to run at, in cron\'s form, e.g. "0 2 * * *"; with --env', metavar="CRON")
    time_zone: str = option("zone of these times (default: Etc/UTC)", "Etc/UTC", metavar="ZONE")
    concurrency: Literal["forbid", "replace", "allow"] = option(
        "while an earlier job of the schedule has not ended: skip the new one, stop the earlier one, or run both",
        "forbid",
    )
    history: int = option("ended jobs of the schedule to keep (default: 10)", 10, metavar="N", at_least=0)


def check_local(options: object, *others: str) -> None:
    """Refuse what only a cluster does, because a forgotten `ENV=…` would otherwise train on this machine.

    Raises:
        SettingsError: such an option is given.
    """
    given = [*others, *(flag for group in _CLUSTER_GROUPS for flag in given_flags(options, group))]
    if given:
        raise SettingsError(f"{given[0]} needs a cluster", remedy="name its environment: ENV=… (--env)")
