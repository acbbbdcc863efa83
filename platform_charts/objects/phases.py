"""The platform's own objects, in phases that are applied in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest
from infra.spec.node_group import resolve_node_groups
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import access
from platform_charts.objects.admission import admission
from platform_charts.objects.alert_rules import alert_rules
from platform_charts.objects.dashboards import dashboards
from platform_charts.objects.disruption import disruption_budgets
from platform_charts.objects.gpu_diagnostics import diagnostics_objects
from platform_charts.objects.image_pull import image_pull_objects
from platform_charts.objects.job_progress import progress_objects
from platform_charts.objects.job_recorder import recorder_objects
from platform_charts.objects.job_sizer import sizer_objects
from platform_charts.objects.mlflow import mlflow
from platform_charts.objects.mlflow_pods import Stores
from platform_charts.objects.monitoring import monitors
from platform_charts.objects.namespaces import namespaces
from platform_charts.objects.network_policies import allow_rules, network_policies
from platform_charts.objects.node_gate import gate_objects
from platform_charts.objects.priorities import priority_classes
from platform_charts.objects.queueing import queueing
from platform_charts.objects.quotas import quotas
from platform_charts.objects.reaper import reaper_objects
from platform_charts.objects.single_sign_on import single_sign_on_objects
from platform_charts.objects.storage import LustreVolume, storage
from platform_charts.objects.ui_access import ui_access


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """Values of the AWS stack that objects refer to.

    Attributes:
        file_system_id: EFS file system, fs-….
        datasets_access_point: access point for the datasets, fsap-….
        team_access_points: access point for each team's runs, by team.
        database_host: host name of MLflow's PostgreSQL.
        database_port: port of MLflow's PostgreSQL.
        database_secret_arn: Secrets Manager secret with the database's `username` and `password`.
        artifact_bucket: S3 bucket for MLflow's artifacts.
        registry: host of the stack's ECR and the prefix of its repositories.
        account: AWS account of the stack.
        api_server_cidrs: ranges of the API server's network interfaces, which are the cluster's subnets.
        volume_key_arn: KMS key of block volumes; None for the account's default EBS key.
        lustre: the FSx for Lustre file system; None without one.
    """

    file_system_id: str
    datasets_access_point: str
    team_access_points: Mapping[str, str]
    database_host: str
    database_port: int
    database_secret_arn: str
    artifact_bucket: str
    registry: str
    account: str
    api_server_cidrs: tuple[str, ...]
    volume_key_arn: str | None = None
    lustre: LustreVolume | None = None


def platform_objects(
    settings: StackSettings, release: ReleaseManifest, facts: ClusterFacts
) -> Mapping[str, tuple[Manifest, ...]]:
    """The platform's own objects by phase. Phases, and objects within a phase, may depend on earlier ones.

    Phases: `namespaces`, `policies` (priorities, network) and `storage` of the platform, `queueing` (needs Kueue's
    CRDs), `teams` (their namespaces with everything in them), `gpu` (node gate, diagnostics, image), `mlflow`, `monitoring` (needs the
    Prometheus operator's CRDs), and `single_sign_on` and `reaper` where they are set.

    Raises:
        SettingsError: a node group combines capacity, placement and EFA in a way that AWS does not support.
    """
    groups = resolve_node_groups(settings, catalog=load_catalog())
    table = allow_rules(settings, database_port=facts.database_port, api_server_cidrs=facts.api_server_cidrs)
    stores = Stores(
        database_host=facts.database_host,
        database_port=facts.database_port,
        database_secret_arn=facts.database_secret_arn,
        artifact_bucket=facts.artifact_bucket,
    )
    phases = {
        "namespaces": namespaces(settings, release),
        "policies": (
            *priority_classes(release),
            *quotas(settings, release, groups),
            *disruption_budgets(settings, release),
            *access(settings, release),
            *ui_access(settings, release),
            *admission(settings, release),
            *network_policies(settings, release, table),
        ),
        "storage": storage(
            settings,
            release,
            file_system_id=facts.file_system_id,
            datasets_access_point=facts.datasets_access_point,
            team_access_points=facts.team_access_points,
            volume_key_arn=facts.volume_key_arn,
            lustre=facts.lustre,
        ),
        "queueing": queueing(settings, release, groups),
        "teams": (),
        "gpu": (
            *gate_objects(groups.gpu, release, registry=facts.registry, diagnostics=settings.gpu_health.diagnostics),
            *diagnostics_objects(groups.gpu, settings, release),
            *image_pull_objects(groups.gpu, release, registry=facts.registry),
        ),
        "mlflow": mlflow(settings, release, stores, registry=facts.registry),
        "monitoring": (
            *monitors(settings, release),
            *alert_rules(settings, release),
            *dashboards(release),
            *progress_objects(release, registry=facts.registry),
            *recorder_objects(settings, release, registry=facts.registry),
            *sizer_objects(settings, release, registry=facts.registry),
        ),
    }
    if settings.single_sign_on is not None:
        phases["single_sign_on"] = single_sign_on_objects(
            settings, release, registry=facts.registry, account=facts.account
        )
    if settings.reaper is not None:
        phases["reaper"] = reaper_objects(
            settings.reaper, release, registry=facts.registry, account=facts.account, region=settings.aws.region
        )
    teams = {team.name for team in settings.teams}
    shared = {name: tuple(one for one in phase if _namespace_of(one) not in teams) for name, phase in phases.items()}
    owned = tuple(one for phase in phases.values() for one in phase if _namespace_of(one) in teams)
    return {**shared, "teams": owned}


def _namespace_of(manifest: Manifest) -> str | None:
    """The namespace that an object is, or is in; None if it belongs to the whole cluster."""
    metadata = manifest["metadata"]
    found: str | None = metadata["name"] if manifest["kind"] == "Namespace" else metadata.get("namespace")
    return found
