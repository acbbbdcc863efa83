"""The settings tree of one environment."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from infra.spec.capacity import LaunchRequest, OnDemand
from infra.spec.node_labels import SYSTEM_GROUP
from infra.spec.section import Section
from infra.spec.settings.cluster import ClusterSettings
from infra.spec.settings.environment import AwsSettings, BudgetSettings, EnvironmentSettings
from infra.spec.settings.network import NetworkSettings
from infra.spec.settings.nodes import GpuGroup, SystemNodes
from infra.spec.settings.platform import Mirrors, MlflowSettings, MonitoringSettings, Team
from infra.spec.settings.stores import DatabaseSettings, RegistrySettings, StorageSettings


class StackSettings(Section):
    """All settings of an environment. Each field is one key of the stack's configuration."""

    environment: EnvironmentSettings = Field(description="Identity of the environment.")
    aws: AwsSettings = Field(description="AWS region and accounts.")
    network: NetworkSettings = Field(description="The VPC.")
    cluster: ClusterSettings = Field(description="The EKS control plane.")
    system_nodes: SystemNodes = Field(SystemNodes(), description="Node group of the platform itself.")
    gpu_groups: tuple[GpuGroup, ...] = Field((), description="GPU node groups for training; may be empty.")
    storage: StorageSettings = Field(StorageSettings(), description="Datasets and checkpoints.")
    database: DatabaseSettings = Field(DatabaseSettings(), description="MLflow's database.")
    registry: RegistrySettings = Field(RegistrySettings(), description="ECR repositories.")
    teams: tuple[Team, ...] = Field((), description="Teams and their GPU quotas.")
    mlflow: MlflowSettings = Field(MlflowSettings(), description="The tracking server.")
    monitoring: MonitoringSettings = Field(MonitoringSettings(), description="Metrics, alerts and dashboards.")
    mirrors: Mirrors = Field(Mirrors(), description="Mirrors of charts and images, for a closed network.")
    budget: BudgetSettings | None = Field(None, description="AWS budget; null: none.")

    def launch_requests(self) -> Sequence[LaunchRequest]:
        """The EC2 settings of every node group, the system group first."""
        system = LaunchRequest(
            name=SYSTEM_GROUP,
            instance_type=self.system_nodes.instance_type,
            capacity=OnDemand(kind="on_demand"),
            max_size=self.system_nodes.max_size,
        )
        return (system, *self.gpu_groups)
