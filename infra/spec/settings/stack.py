"""The settings tree of one environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from infra.spec.capacity import LaunchRequest
from infra.spec.node_labels import HEAD_GROUP, SYSTEM_GROUP
from infra.spec.protection import protection_of
from infra.spec.section import Section
from infra.spec.settings.cluster import LUSTRE_DRIVER, ClusterSettings
from infra.spec.settings.environment import AwsSettings, BudgetSettings, EnvironmentSettings
from infra.spec.settings.health import GpuHealthSettings
from infra.spec.settings.logs import LogSettings
from infra.spec.settings.network import NetworkSettings
from infra.spec.settings.nodes import GpuGroup, HeadNodes, SystemNodes
from infra.spec.settings.platform import Mirrors, MlflowSettings, MonitoringSettings, Team
from infra.spec.settings.reaper import ReaperSettings
from infra.spec.settings.single_sign_on import SingleSignOnSettings
from infra.spec.settings.stores import DatabaseSettings, RegistrySettings, StorageSettings


class StackSettings(Section):
    """All settings of an environment. Each field is one key of the stack's configuration."""

    environment: EnvironmentSettings = Field(description="Identity of the environment.")
    aws: AwsSettings = Field(description="AWS region and accounts.")
    network: NetworkSettings = Field(description="The VPC.")
    cluster: ClusterSettings = Field(description="The EKS control plane.")
    system_nodes: SystemNodes = Field(SystemNodes(), description="Node group of the platform itself.")
    head_nodes: HeadNodes = Field(HeadNodes(), description="Node group of Ray heads and of jobs without GPUs.")
    gpu_groups: tuple[GpuGroup, ...] = Field((), description="GPU node groups for training; may be empty.")
    capacity_order: tuple[str, ...] = Field(
        (),
        description="GPU groups in the order in which a job that names a GPU model tries them. Those not listed follow: "
        "Capacity Blocks, reservations, on demand, spot.",
    )
    storage: StorageSettings = Field(StorageSettings(), description="Datasets and checkpoints.")
    database: DatabaseSettings = Field(DatabaseSettings(), description="MLflow's database.")
    registry: RegistrySettings = Field(RegistrySettings(), description="ECR repositories.")
    teams: tuple[Team, ...] = Field((), description="Teams and their GPU quotas.")
    mlflow: MlflowSettings = Field(MlflowSettings(), description="The tracking server.")
    monitoring: MonitoringSettings = Field(MonitoringSettings(), description="Metrics, alerts and dashboards.")
    logs: LogSettings = Field(LogSettings(), description="Logs of the pods, which outlive them.")
    single_sign_on: SingleSignOnSettings | None = Field(
        None, description="MLflow and Grafana behind a load balancer with single sign-on; null: `make open` only."
    )
    reaper: ReaperSettings | None = Field(
        None, description="Schedule that removes expired test clusters of the account; null: `make reap` only."
    )
    gpu_health: GpuHealthSettings = Field(GpuHealthSettings(), description="Checks of GPU nodes.")
    mirrors: Mirrors = Field(Mirrors(), description="Mirrors of charts and images, for a closed network.")
    budget: BudgetSettings | None = Field(None, description="AWS budget; null: none.")

    @property
    def has_grafana_viewers(self) -> bool:
        """Whether Grafana shows its dashboards without a login, to those whom policies let reach it."""
        return self.monitoring.open_to_teams or self.single_sign_on is not None

    @property
    def backup_schedule(self) -> Literal["nightly", "suspended"]:
        """Whether MLflow is backed up each night: as set, else where the stack's other stores have backups."""
        return self.mlflow.backup or ("nightly" if protection_of(self.environment.kind).backup_days else "suspended")

    @property
    def restore_drill_schedule(self) -> Literal["weekly", "suspended"]:
        """Whether a backup is restored each week: as set, else where there are nightly backups."""
        return self.mlflow.restore_drill or ("weekly" if self.backup_schedule == "nightly" else "suspended")

    @property
    def backup_days(self) -> int:
        """Days for which a backup of MLflow is kept."""
        return self.mlflow.backup_keep_days or self.storage.noncurrent_days

    def needs_addon(self, name: str) -> bool:
        """Whether the cluster must have an add-on of the release, whoever installs it."""
        return name != LUSTRE_DRIVER or self.storage.lustre is not None

    def installs_addon(self, name: str) -> bool:
        """Whether the stack installs an add-on of the release."""
        return self.needs_addon(name) and self.cluster.installs(name)

    def launch_requests(self) -> Sequence[LaunchRequest]:
        """The EC2 settings of every node group: the system group, the head group, and the GPU groups."""
        system, heads = self.system_nodes, self.head_nodes
        return (
            LaunchRequest(name=SYSTEM_GROUP, instance_type=system.instance_type, max_size=system.max_size),
            LaunchRequest(name=HEAD_GROUP, instance_type=heads.instance_type, max_size=heads.max_size),
            *self.gpu_groups,
        )
