"""Everything of our own that the cluster holds, in the order in which it has to be made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.node_group import resolve_node_groups
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import access
from platform_charts.objects.mlflow import Stores, mlflow
from platform_charts.objects.monitoring import monitors
from platform_charts.objects.namespaces import namespaces
from platform_charts.objects.network_policies import network_policies, openings
from platform_charts.objects.node_gate import gate_objects
from platform_charts.objects.priorities import priority_classes
from platform_charts.objects.queueing import queueing
from platform_charts.objects.quotas import quotas
from platform_charts.objects.storage import storage


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """What exists only once the AWS stack is up, as text.

    Attributes:
        file_system_id: EFS file system, fs-….
        datasets_access_point: its access point of the datasets, fsap-….
        team_access_points: that of each team's runs, by team.
        database_host: host name of MLflow's PostgreSQL.
        database_port: its port.
        database_secret_arn: Secrets Manager secret with the database's `username` and `password`.
        artifact_bucket: S3 bucket of MLflow's artifacts.
        registry: host of the stack's ECR and the beginning of its repositories' names.
        api_server_cidrs: ranges in which the API server's network interfaces have their addresses: the subnets that EKS
            was given.
        volume_key_arn: KMS key of block volumes; None takes the account's default key of EBS.
    """

    file_system_id: str
    datasets_access_point: str
    team_access_points: Mapping[str, str]
    database_host: str
    database_port: int
    database_secret_arn: str
    artifact_bucket: str
    registry: str
    api_server_cidrs: tuple[str, ...]
    volume_key_arn: str | None = None


def platform_objects(
    settings: StackSettings, release: ReleaseManifest, facts: ClusterFacts
) -> Mapping[str, tuple[Manifest, ...]]:
    """Our own objects by phase; a phase may need every phase before it, and an object those before it in its phase.

    Phases: `namespaces`, `policies` (priorities, quotas, access, network), `storage`, `queueing` (needs Kueue's custom
    resource definitions), `gpu` (what opens GPU nodes), `mlflow`, `monitoring` (needs the Prometheus operator's).

    Raises:
        SettingsError: a node group is impossible.
    """
    groups = resolve_node_groups(settings, catalog=load_catalog())
    table = openings(settings, database_port=facts.database_port, api_server_cidrs=facts.api_server_cidrs)
    stores = Stores(
        database_host=facts.database_host,
        database_port=facts.database_port,
        database_secret_arn=facts.database_secret_arn,
        artifact_bucket=facts.artifact_bucket,
    )
    return {
        "namespaces": namespaces(settings, release),
        "policies": (
            *priority_classes(release),
            *quotas(settings, release, groups),
            *access(settings, release),
            *network_policies(settings, release, table),
        ),
        "storage": storage(
            settings,
            release,
            file_system_id=facts.file_system_id,
            datasets_access_point=facts.datasets_access_point,
            team_access_points=facts.team_access_points,
            volume_key_arn=facts.volume_key_arn,
        ),
        "queueing": queueing(settings, release, groups),
        "gpu": gate_objects(groups.gpu, release, registry=facts.registry),
        "mlflow": mlflow(settings, release, stores, registry=facts.registry),
        "monitoring": monitors(settings, release),
    }
