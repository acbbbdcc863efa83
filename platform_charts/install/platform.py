"""The platform on the cluster, as a part of the stack: definitions, namespaces, policies, charts, and our own objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.helm import v3 as helm

from infra.aws import database
from infra.aws.program import Platform
from infra.aws.registry import mirror_prefix
from infra.spec.kubeconfig import kubeconfig
from infra.spec.names import cluster_name
from infra.spec.protection import EnvironmentKind
from infra.spec.settings.network import subnets_of
from platform_charts.charts.archives import archive_path
from platform_charts.charts.crds import CRD_GROUPS, CrdSource
from platform_charts.charts.installs import ChartInstall, chart_installs
from platform_charts.install.objects import LateValues, ObjectGroup
from platform_charts.objects.phases import ClusterFacts, platform_objects

PROGRAM = Path(__file__).parents[2] / "infra"
"""Where the engine runs the program, and Helm looks for archives: paths from here are the same on every machine."""

_BEFORE_CHARTS = ("namespaces", "policies", "storage")
"""Phases that charts need: where they go, what they may, and the class of their volumes."""

_HISTORY = 5
"""Revisions that Helm keeps of a release, each a Secret."""


def install(platform: Platform, *, crds: CrdSource | None) -> None:
    """Register everything on the cluster.

    Args:
        platform: the AWS side.
        crds: where definitions come from; None leaves them out, which is for recordings of a program only.

    Raises:
        SettingsError: a chart has no version, or `crds` lacks the definitions of one that is installed.
    """
    settings, late = platform.settings, LateValues(_outputs(platform))
    provider = make_provider(platform)
    nodes = [platform.addons, platform.system_nodes, platform.identity]

    def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(providers=[provider], depends_on=list(resources))

    caches = _caches(platform, late)
    installs = chart_installs(
        settings,
        platform.release,
        platform.catalog,
        caches=caches,
        registry=late.marker("our_images"),
        alert_topic=late.marker("alert_topic") if platform.alerts else "",
    )
    phases = platform_objects(settings, platform.release, _facts(platform, late))
    definitions: list[pulumi.Resource] = []
    if crds is not None:
        manifests = [one for chart, group in CRD_GROUPS.items() if chart in installs for one in crds.crds(group)]
        definitions = [ObjectGroup("definitions", manifests, late, after(*nodes), is_kept=True)]
    ground: list[pulumi.Resource] = [*nodes]
    for phase in _BEFORE_CHARTS:
        ground = [ObjectGroup(phase, phases[phase], late, after(*ground))]
    charts = Charts(platform, installs.values(), late, after(*ground, *definitions))
    for phase, manifests_of_phase in phases.items():
        if phase not in _BEFORE_CHARTS:
            ObjectGroup(phase, manifests_of_phase, late, after(charts))


class Charts(pulumi.ComponentResource):
    """The Helm releases; none needs another.

    Args:
        platform: the AWS side.
        installs: what is installed.
        late: values that markers in chart values stand for.
        opts: options of the component.
    """

    def __init__(
        self, platform: Platform, installs: Iterable[ChartInstall], late: LateValues, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("rtp:kubernetes:Charts", "charts", None, opts)
        for one in installs:
            chart = platform.release.charts[one.name]
            helm.Release(
                one.name,
                name=one.name,
                namespace=one.namespace,
                chart=os.path.relpath(archive_path(one.name, chart), PROGRAM),
                version=chart.version,
                values=late.filled(one.values),
                # Whole or not at all: what fails half-way is taken back, and the next attempt finds no release pending.
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


def make_provider(platform: Platform) -> kubernetes.Provider:
    """The one Kubernetes provider: server-side apply, and objects of a name that is there are taken over.

    A stack whose update was broken off has objects that its state does not know; with `upsert_existing_objects` the next
    update goes on. Only what may be lost is given up for lost where the cluster cannot be reached.
    """
    name, region = platform.cluster.name, platform.settings.aws.region
    way = pulumi.Output.all(
        name=name, endpoint=platform.cluster.endpoint, authority=platform.cluster.certificate_authority
    ).apply(lambda known: json.dumps(kubeconfig(**known, region=region)))
    return kubernetes.Provider(
        "kubernetes",
        kubeconfig=way,
        # Without it a new endpoint or certificate would read as another cluster, and replace everything on it.
        cluster_identifier=cluster_name(platform.settings),
        enable_server_side_apply=True,
        upsert_existing_objects=True,
        delete_unreachable=platform.settings.environment.kind is EnvironmentKind.TEST,
        opts=pulumi.ResourceOptions(depends_on=[platform.cluster]),
    )


def _outputs(platform: Platform) -> dict[str, pulumi.Output[str]]:
    """What exists only once the AWS stack is up, mostly by the name of its field in `ClusterFacts`."""
    region, file_system = platform.settings.aws.region, platform.storage.file_system
    return {
        "file_system_id": file_system.id,
        "datasets_access_point": file_system.datasets.id,
        **{_access_point_of(team): point.id for team, point in file_system.teams.items()},
        "database_host": platform.database.address,
        "database_secret_arn": platform.database.secret_arn,
        "volume_key_arn": platform.encryption.keys["volumes"],
        "artifact_bucket": platform.storage.artifacts.name,
        "registry": pulumi.Output.concat(platform.account, f".dkr.ecr.{region}.amazonaws.com"),
        **({"alert_topic": platform.alerts.arn} if platform.alerts else {}),
        # Our own images: every repository's name begins with the cluster's.
        "our_images": pulumi.Output.concat(
            platform.account, f".dkr.ecr.{region}.amazonaws.com/{cluster_name(platform.settings)}"
        ),
    }


def _access_point_of(team: str) -> str:
    return f"access_point_{team}"


def _facts(platform: Platform, late: LateValues) -> ClusterFacts:
    subnets = subnets_of(platform.settings.network)
    return ClusterFacts(
        file_system_id=late.marker("file_system_id"),
        datasets_access_point=late.marker("datasets_access_point"),
        team_access_points={team.name: late.marker(_access_point_of(team.name)) for team in platform.settings.teams},
        database_host=late.marker("database_host"),
        database_port=database.PORT,
        database_secret_arn=late.marker("database_secret_arn"),
        artifact_bucket=late.marker("artifact_bucket"),
        registry=late.marker("our_images"),
        volume_key_arn=late.marker("volume_key_arn"),
        api_server_cidrs=tuple(str(cidr) for cidr in subnets.private),
    )


def _caches(platform: Platform, late: LateValues) -> dict[str, str]:
    """Prefixes of the pull-through caches by the public registry each one caches."""
    name = cluster_name(platform.settings)
    return {
        host: f"{late.marker('registry')}/{mirror_prefix(name, host)}"
        for host in platform.settings.registry.pull_through
    }
