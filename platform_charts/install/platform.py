"""The Kubernetes side of the stack: namespaces, policies, CRDs, charts and the platform's own objects, in order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.helm import v3 as helm

from infra.aws import database
from infra.aws.program import Platform
from infra.aws.registry import pull_through_prefix
from infra.kube.connection import api_server, connect_to
from infra.kube.definitions import apply_crds
from infra.spec.errors import PlatformError
from infra.spec.kubeconfig import kubeconfig
from infra.spec.names import cluster_name, name_prefix
from infra.spec.outputs import ClusterOutput
from infra.spec.protection import EnvironmentKind
from infra.spec.registry_names import Registry
from infra.spec.settings.addresses import control_plane_cidrs
from platform_charts.charts.archives import archive_path
from platform_charts.charts.crds import CRD_GROUPS, CrdSource, not_older
from platform_charts.charts.installs import ChartInstall, chart_installs
from platform_charts.install.objects import DeferredOutputs, KubernetesObject, ObjectGroup
from platform_charts.objects.namespaces import kubernetes_minor
from platform_charts.objects.phases import ClusterFacts, platform_objects
from platform_charts.objects.storage import LustreVolume

PROGRAM = Path(__file__).parents[2] / "infra"
"""Working directory of the program. Archive paths are relative to it, so that they are equal on every machine."""

_BEFORE_CHARTS = ("namespaces", "policies", "storage")
"""Phases that charts depend on: the platform's namespaces and network policies, priorities, storage classes."""

_HISTORY = 5
"""Revisions per Helm release; each is a Secret."""


def install(platform: Platform, *, crds: CrdSource | None = None) -> None:
    """Register everything on the cluster.

    Args:
        platform: the AWS side.
        crds: source of the CRDs, which an update applies before the charts; None applies none, for recordings only.

    Raises:
        SettingsError: a chart has no version, or `crds` lacks the CRDs of an installed chart.
    """
    settings, outputs = platform.settings, DeferredOutputs(_outputs(platform))
    provider = make_provider(platform)
    nodes = [platform.addons, platform.system_nodes, platform.identity]

    def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(providers=[provider], depends_on=list(resources))

    installs = chart_installs(
        settings,
        platform.release,
        platform.catalog,
        caches=_pull_through_caches(platform, outputs),
        registry=outputs.placeholder("our_images"),
        alert_topic=outputs.placeholder("alert_topic") if platform.alert_topic else "",
    )
    phases = platform_objects(settings, platform.release, _cluster_facts(platform, outputs))

    earlier: list[KubernetesObject] = []

    def phase(name: str, *needed: pulumi.Resource) -> ObjectGroup:
        group = ObjectGroup(name, phases[name], outputs, after(*needed), earlier=earlier)
        earlier.extend(group.objects)
        return group

    previous: list[pulumi.Resource] = [*nodes]
    for name in _BEFORE_CHARTS:
        previous = [phase(name, *previous)]
    definitions = None
    if crds is not None:
        groups = [group for chart, group in CRD_GROUPS.items() if chart in installs]
        definitions = _definitions(platform, crds, groups, previous[-1])
    charts = Charts(platform, installs.values(), outputs, definitions, after(*previous))
    # Pulumi deletes in reverse order: jobs have finalizers that only living operators remove, and a queue is deleted once no
    # job uses it. So the teams' namespaces go first.
    teams = phase("teams", phase("queueing", charts))
    for name in ("gpu", "mlflow", "monitoring", "single_sign_on", "reaper"):
        if name in phases:
            phase(name, teams)


class Charts(pulumi.ComponentResource):
    """The Helm releases, which do not depend on each other.

    Args:
        platform: the AWS side.
        installs: the charts to install.
        outputs: outputs for placeholders in chart values.
        definitions: resolved once the CRDs are applied; None if nothing applies them.
        opts: options of the component.
    """

    def __init__(
        self,
        platform: Platform,
        installs: Iterable[ChartInstall],
        outputs: DeferredOutputs,
        definitions: pulumi.Output[None] | None,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("rtp:kubernetes:Charts", "charts", None, opts)
        for one in installs:
            chart = platform.release.charts[one.name]
            version: pulumi.Input[str] = str(chart.version)
            if definitions is not None:
                version = pulumi.Output.all(definitions, version).apply(itemgetter(1))
            helm.Release(
                one.name,
                name=one.name,
                namespace=one.namespace,
                chart=os.path.relpath(archive_path(one.name, chart), PROGRAM),
                version=version,
                values=outputs.resolve(one.values),
                # A failed install or upgrade rolls back and leaves no pending release that would block the next one.
                atomic=True,
                cleanup_on_fail=True,
                timeout=one.timeout_s,
                wait_for_jobs=True,
                skip_crds=one.skip_crds,
                create_namespace=False,
                max_history=_HISTORY,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


def _definitions(
    platform: Platform, crds: CrdSource, groups: Sequence[str], needed: pulumi.Resource
) -> pulumi.Output[None] | None:
    """Apply the CRDs once `needed` is registered; None in a preview.

    CRDs are no resources: 17 of them were 12.0 of the 12.4 MB of a stack's state, which Pulumi writes after every step, and every
    policy read them. The preflight compares them with the cluster's. Newer ones of the cluster stay, when a step of an upgrade is
    taken back. They outlive the stack's other objects, because deleting a CRD deletes all of its objects.
    """
    manifests = [crd for group in groups for crd in crds.crds(group)]
    if pulumi.runtime.is_dry_run():
        return None
    cluster, region = platform.cluster, platform.settings.aws.region
    minor = kubernetes_minor(platform.settings, platform.release)

    def apply(known: Mapping[str, str]) -> None:
        found = ClusterOutput(
            name=known["name"], endpoint=known["endpoint"], certificate_authority=known["authority"], kubernetes=minor
        )
        try:
            api = connect_to(found, region=region)
            live = (api.read(one) for one in manifests)
            apply_crds(api, not_older(manifests, filter(None, live)))
        except PlatformError as error:
            raise pulumi.RunError(str(error)) from error

    return pulumi.Output.all(
        name=cluster.name, endpoint=cluster.endpoint, authority=cluster.certificate_authority, needed=needed.urn
    ).apply(apply)


def make_provider(platform: Platform) -> kubernetes.Provider:
    """Make the Kubernetes provider, with server-side apply.

    An interrupted update leaves objects that the state lacks; `upsert_existing_objects` lets the next update adopt
    them. Only test clusters drop unreachable objects from the state by themselves.
    """
    name, region, via = platform.cluster.name, platform.settings.aws.region, api_server()
    kubeconfig_json = pulumi.Output.all(
        name=name, endpoint=platform.cluster.endpoint, authority=platform.cluster.certificate_authority
    ).apply(lambda known: json.dumps(kubeconfig(**known, region=region, via=via)))
    return kubernetes.Provider(
        "kubernetes",
        kubeconfig=kubeconfig_json,
        # By default a change of endpoint or certificate counts as another cluster and replaces every object.
        cluster_identifier=cluster_name(platform.settings),
        enable_server_side_apply=True,
        # What somebody or a controller has changed becomes again what the program says, instead of a conflict that ends the update.
        # So do the taints of queues' flavors, which the node gate changes; it sets its own again.
        enable_patch_force=True,
        upsert_existing_objects=True,
        # Unset elsewhere: false would override the variable PULUMI_K8S_DELETE_UNREACHABLE of a `pulumi destroy`.
        delete_unreachable=platform.settings.environment.kind is EnvironmentKind.TEST or None,
        opts=pulumi.ResourceOptions(depends_on=[platform.cluster]),
    )


def _outputs(platform: Platform) -> dict[str, pulumi.Output[str]]:
    """Outputs that objects and charts refer to, mostly by their field in `ClusterFacts`."""
    settings, file_system, lustre = platform.settings, platform.storage.file_system, platform.storage.lustre
    registry = platform.account.apply(lambda account: Registry.of(settings, account=account))
    return {
        "file_system_id": file_system.id,
        "datasets_access_point": file_system.datasets.id,
        **{_access_point_of(team): point.id for team, point in file_system.teams.items()},
        **(
            {"lustre_id": lustre.id, "lustre_dns_name": lustre.dns_name, "lustre_mount_name": lustre.mount_name}
            if lustre is not None
            else {}
        ),
        "database_host": platform.database.address,
        "database_secret_arn": platform.database.secret_arn,
        "volume_key_arn": platform.encryption.keys["volumes"],
        "artifact_bucket": platform.storage.artifacts.name,
        "registry": registry.apply(lambda found: found.host),
        **({"alert_topic": platform.alert_topic.arn} if platform.alert_topic else {}),
        "account": platform.account,
        "our_images": registry.apply(lambda found: found.prefix),
    }


def _access_point_of(team: str) -> str:
    return f"access_point_{team}"


def _cluster_facts(platform: Platform, outputs: DeferredOutputs) -> ClusterFacts:
    return ClusterFacts(
        file_system_id=outputs.placeholder("file_system_id"),
        datasets_access_point=outputs.placeholder("datasets_access_point"),
        team_access_points={
            team.name: outputs.placeholder(_access_point_of(team.name)) for team in platform.settings.teams
        },
        database_host=outputs.placeholder("database_host"),
        database_port=database.PORT,
        database_secret_arn=outputs.placeholder("database_secret_arn"),
        artifact_bucket=outputs.placeholder("artifact_bucket"),
        registry=outputs.placeholder("our_images"),
        account=outputs.placeholder("account"),
        volume_key_arn=outputs.placeholder("volume_key_arn"),
        lustre=None
        if platform.storage.lustre is None
        else LustreVolume(*(outputs.placeholder(f"lustre_{part}") for part in LustreVolume._fields)),
        api_server_cidrs=control_plane_cidrs(platform.settings),
    )


def _pull_through_caches(platform: Platform, outputs: DeferredOutputs) -> dict[str, str]:
    """Repository prefix of each pull-through cache, by upstream registry."""
    name = name_prefix(platform.settings)
    return {
        host: f"{outputs.placeholder('registry')}/{pull_through_prefix(name, host)}"
        for host in platform.settings.registry.pull_through
    }
