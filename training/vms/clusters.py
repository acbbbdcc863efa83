"""Requests for clusters of virtual machines, checked before anything is rendered."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.errors import SettingsError

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
_AMI = re.compile(r"ami-[0-9a-f]{8,17}")
_PROFILE = re.compile(r"[\w+=.@-]{1,128}", re.ASCII)
"""Names of IAM (CreateInstanceProfile), but for the comma, which separates two."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_SPECIAL_IN_URLS = frozenset("%?#")

_AMI_REMEDY = (
    "AMI=ami-… (--ami) of Amazon Linux 2023 with NVIDIA's driver, e.g. the one that `aws ssm get-parameter --name "
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id` prints"
)


@dataclass(frozen=True)
class NodeRange:
    """The fewest and the most worker nodes; Ray's autoscaler chooses among them by what jobs ask for."""

    fewest: int
    most: int

    @classmethod
    def parse(cls, text: str) -> NodeRange:
        """Read `4`, always four, or `0-4`.

        Raises:
            SettingsError: it is neither, or there can be no worker.
        """
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise SettingsError(
                f"workers={text!r} is not a number of nodes, or a range of them", remedy="write 4, or 0-4"
            )
        fewest, most = int(match[1]), int(match[2] or match[1])
        if not fewest <= most or most == 0:
            raise SettingsError(
                f"workers={text} must satisfy fewest ≤ most, and most ≥ 1",
                remedy=f"write {most}-{fewest}" if most else "write 1, or 0-1",
            )
        return cls(fewest, most)


@dataclass(frozen=True, kw_only=True)
class AwsCluster:
    """Machines in EC2, which Ray's autoscaler starts and ends.

    Attributes:
        name: name of the cluster, unique in the account and region.
        workers: how many GPU workers.
        group: GPU group of the stack whose instance type the workers have; None: the only one.
        is_spot: the workers are spot instances; those of a spot group are in any case.
        head_profile: IAM instance profile of the head, which starts the workers.
        worker_profile: IAM instance profile of the workers.
        ami: image of all machines.
        ssh_user: user of the image.
    """

    name: str
    workers: NodeRange
    group: str | None
    is_spot: bool
    head_profile: str
    worker_profile: str
    ami: str
    ssh_user: str

    def __post_init__(self) -> None:
        """Refuse values that EC2 cannot have.

        Raises:
            SettingsError: names the field, its value and its rule.
        """
        _check_name(self.name)
        _check_user(self.ssh_user)
        for name in (self.head_profile, self.worker_profile):
            if not _PROFILE.fullmatch(name):
                raise SettingsError(
                    f"profile={name!r} is not the name of an IAM instance profile",
                    remedy="PROFILE=HEAD,WORKERS (--profile) with names, not ARNs; docs/VMS.md says what they need",
                )
        if not _AMI.fullmatch(self.ami):
            raise SettingsError(f"ami={self.ami!r} is not the ID of an image", remedy=_AMI_REMEDY)


@dataclass(frozen=True, kw_only=True)
class OwnCluster:
    """Machines that exist, reached over SSH.

    Attributes:
        name: name of the cluster, unique among those of the user's machine.
        head: address of the head, as the other machines reach it.
        workers: addresses of the workers.
        ssh_user: user on all of them.
        ssh_key: file of a private key, which Ray copies to the head; None: what ssh is configured with.
        runs: folder of the runs, on storage that all of them share.
    """

    name: str
    head: str
    workers: tuple[str, ...]
    ssh_user: str
    ssh_key: Path | None
    runs: Path

    def __post_init__(self) -> None:
        """Refuse values that Ray would fail with later.

        Raises:
            SettingsError: names the field, its value and its rule.
        """
        _check_name(self.name)
        _check_user(self.ssh_user)
        hosts = (self.head, *self.workers)
        for host in hosts:
            _check_host(host)
        if len(set(hosts)) < len(hosts):
            twice = next(host for host in hosts if hosts.count(host) > 1)
            raise SettingsError(f"hosts: {twice} is there twice", remedy="name each machine once, the head first")
        if self.ssh_key is not None:
            _check_key(self.ssh_key)
        _check_runs(self.runs)


def split_hosts(hosts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The head, which is the first, and the workers.

    Raises:
        SettingsError: there is no worker: the head runs no rank.
    """
    if len(hosts) < 2:
        raise SettingsError(
            f"hosts: {' '.join(hosts) or 'none'} is too few: a head, which runs no rank, and at least one worker",
            remedy='HOSTS="HEAD WORKER …", separated by spaces (--host, repeatable); on a single machine use make train',
        )
    head, *workers = hosts
    return head, tuple(workers)


def split_profiles(text: str | None) -> tuple[str, str]:
    """The instance profiles of head and workers in `HEAD,WORKERS`, or in one name for both.

    Raises:
        SettingsError: there is none, and Ray would make one that may do everything in EC2 and S3; or there are more than two.
    """
    if not text:
        raise SettingsError(
            "no IAM instance profile: the stack makes none for machines outside of its cluster",
            remedy="PROFILE=HEAD,WORKERS (--profile); docs/VMS.md has their policies",
        )
    head, *workers = text.split(",")
    if len(workers) > 1:
        raise SettingsError(
            f"profile={text} names {len(workers) + 1} instance profiles, for two kinds of machines",
            remedy="PROFILE=HEAD,WORKERS (--profile), or one name for both",
        )
    return head, workers[0] if workers else head


def require_ami(ami: str | None) -> str:
    """The image.

    Raises:
        SettingsError: there is none; Ray's default has neither this Python nor a current driver.
    """
    if ami is None:
        raise SettingsError("no machine image", remedy=_AMI_REMEDY)
    return ami


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"name={name!r} of a Ray cluster must match {_NAME.pattern}",
            remedy="use a-z, 0-9 and -, begin with a letter, at most 40 characters: NAME=… (--name)",
        )


def _check_user(user: str) -> None:
    if not _USER.fullmatch(user):
        raise SettingsError(f"ssh-user={user!r} is not the name of a user", remedy="SSH_USER=… (--ssh-user)")


def _check_key(file: Path) -> None:
    if not file.is_file():
        raise SettingsError(f"ssh-key={file}: no such file", remedy="name the file of a private key")
    if file.suffix == ".pub":
        raise SettingsError(f"ssh-key={file} is a public key", remedy=f"name the private one: {file.with_suffix('')}")


def _check_runs(folder: Path) -> None:
    if not folder.is_absolute():
        raise SettingsError(
            f"runs={folder} must be an absolute path, of a folder that all machines share",
            remedy="RUNS=/nfs/runs (--runs)",
        )
    special = sorted({*str(folder)} & _SPECIAL_IN_URLS)
    if special:
        raise SettingsError(
            f"runs={folder} contains {' '.join(special)}, which the address of MLflow's database there cannot have",
            remedy="name another folder: RUNS=/nfs/runs (--runs)",
        )


def _check_host(host: str) -> None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _HOST.fullmatch(host):
            raise SettingsError(
                f"host={host!r} is neither an address nor the name of a host",
                remedy="HOSTS names machines, separated by spaces; the user is SSH_USER=… (--ssh-user)",
            ) from None
        return
    if address.version != 4:
        raise SettingsError(
            f"host={host} is an IPv6 address, and Ray's launcher copies files to host:path",
            remedy="name the machine by its host name, or by an IPv4 address",
        )
