"""The options of commands on clusters of virtual machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from infra.spec.command_line import given_flags, option
from training.errors import SettingsError
from training.options.cluster import ClusterOptions
from training.options.given import OwnCodeOptions, SettingsOptions

_MACHINES = "on machines without Kubernetes"
_ALLOWED = frozenset({"--detach", "--stop-on-interrupt"})


@dataclass(frozen=True, kw_only=True)
class RayFileOptions:
    """The cluster of a launcher file."""

    TITLE: ClassVar = _MACHINES

    ray: Path | None = option("launcher file of a Ray cluster, as `ray-cluster` writes it", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """A stack that gives machines their network, bucket and instance types."""

    env: str | None = option("environment of the stack")
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    team: str | None = option("team whose runs and bucket the machines use; required if the stack has several")


@dataclass(frozen=True, kw_only=True)
class RayClusterOptions(StackOptions):
    """Options of `ray-cluster`."""

    name: str | None = option("name of the cluster (default: ray-ENV, or ray-own)")
    workers: str | None = option(
        "worker nodes in EC2, e.g. 4, or 0-4 as jobs need them (default: 0-1)", metavar="N[-N]"
    )
    group: str | None = option("GPU group of the stack whose instance type the workers have (default: the only one)")
    spot: bool = option("spot instances as workers", default=False)
    profile: str | None = option("IAM instance profiles of head and workers, or one for both", metavar="HEAD[,WORKERS]")
    ami: str | None = option("image of the machines in EC2", metavar="AMI")
    host: tuple[str, ...] = option(
        "a machine that exists, the head first, instead of machines in EC2; repeatable", metavar="ADDRESS"
    )
    ssh_user: str | None = option("user of the machines (default: ec2-user in EC2)", metavar="USER")
    ssh_key: Path | None = option("with --host: private key, which Ray copies to the head", metavar="FILE")
    runs: Path | None = option("with --host: folder of the runs, which all machines share", metavar="FOLDER")
    tracking_uri: str | None = option(
        "MLflow that the machines reach (default: the stack's if they can, else a database in the runs)", metavar="URI"
    )
    out: Path | None = option("file to write (default: .local/clusters/NAME.yaml)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class AnyscaleOptions(StackOptions, OwnCodeOptions, SettingsOptions):
    """Options of `anyscale`."""

    env: str = option("environment of the stack, whose image, bucket and instance types the job uses", ...)
    cloud: str = option("name of the Anyscale cloud", ...)
    workers: str | None = option("GPU nodes, e.g. 4, or 0-4 (default: 0-1)", metavar="N[-N]")
    group: str | None = option("GPU group of the stack whose instance type the workers have (default: the only one)")
    spot: bool = option("spot instances as workers, where there are any", default=False)
    tracking_uri: str | None = option("MLflow that the job reaches (default: as of `ray-cluster`)", metavar="URI")
    out: Path | None = option("folder to write (default: .local/anyscale/NAME)", metavar="FOLDER")


def check_machines(options: object) -> None:
    """Refuse what only Kubernetes does, beside a launcher file.

    Raises:
        SettingsError: such an option is given.
    """
    given = [flag for flag in given_flags(options, ClusterOptions.TITLE) if flag not in _ALLOWED]
    given += given_flags(options, "on a schedule")
    if given:
        raise SettingsError(
            f"{given[0]} needs Kubernetes, and RAY=… (--ray) names machines without it",
            remedy="leave out one of the two",
        )
