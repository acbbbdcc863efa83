"""The options of the commands for a cluster's UIs, datasets and backups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.spec.command_line import argument, option
from training.options.cluster import ClusterOptions, DetachOptions


@dataclass(frozen=True, kw_only=True)
class OpenOptions(ClusterOptions):
    """Options of `open`."""

    what: tuple[str, ...] = argument("UIs to open: mlflow, grafana, prometheus, alertmanager, ray", ())
    env: str = option("environment of the stack", ...)
    job: str | None = option("job or session whose Ray dashboard to open (default: the newest session, else job)")
    port: int = option("local port (default: the UI's own, or another that is free)", 0, at_least=0, at_most=65535)


@dataclass(frozen=True, kw_only=True)
class DataSyncOptions(DetachOptions):
    """Options of `data-sync`."""

    source: str | None = argument("s3://BUCKET/FOLDER; the environment's storage.dataset_sources lists the buckets")
    destination: str | None = argument("datasets/NAME, which jobs see as /mnt/datasets/NAME")
    workers: int = option("threads (default: 16)", 16, at_least=1)
    delete: bool = option("delete files copied earlier that the source no longer has", default=False)
    accept_unverified: bool = option("accept objects without a checksum that can be computed", default=False)
    env: str = option("environment of the stack", ...)
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    kubeconfig: Path | None = option("kubeconfig (default: $KUBECONFIG, else AWS credentials)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class BackupOptions(DetachOptions):
    """Options of `backup`."""

    json: bool = option("print the outcome as JSON, and the log on standard error", default=False)
    env: str = option("environment of the stack", ...)
    outputs: Path | None = option("outputs of the stack (default: $RTP_STACK_OUTPUTS, else pulumi's)", metavar="FILE")
    kubeconfig: Path | None = option("kubeconfig (default: $KUBECONFIG, else AWS credentials)", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class RestoreDrillOptions(BackupOptions):
    """Options of `restore-drill`."""

    backup: str | None = option("name of the backup (default: the newest)", metavar="NAME")
    keep: bool = option(
        "keep what was restored, as restored_mlflow and restored_mlflow_auth: docs/BACKUP.md", default=False
    )
