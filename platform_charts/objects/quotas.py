"""Quotas of a team's namespace: a second limit beside Kueue's, which also holds while Kueue is down."""

from __future__ import annotations

from infra.spec.cluster_names import GPU_NAMESPACE, PLATFORM_PRIORITY
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.node_group import NodeGroups
from infra.spec.node_labels import GPU_RESOURCE
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings
from platform_charts.container_resources import UNSIZED
from platform_charts.objects.shares import reachable_gpus

_COUNTS = {
    # A loop that submits without end would fill etcd and starve the operator; no team works with so many objects.
    "pods": "1000",
    "configmaps": "1000",
    "count/rayjobs.ray.io": "500",
    "count/rayclusters.ray.io": "500",
    "count/jobs.batch": "500",
    "count/cronjobs.batch": "50",
    # A RayCluster may give its head any kind of service; these two would put Ray's dashboard outside the cluster.
    "services.loadbalancers": "0",
    "services.nodeports": "0",
}

_CRITICAL = (PLATFORM_PRIORITY, "system-cluster-critical", "system-node-critical")


def quotas(settings: StackSettings, release: ReleaseManifest, groups: NodeGroups) -> tuple[Manifest, ...]:
    """ResourceQuotas and LimitRange of every team's namespace, and the LimitRange of the GPU daemons' namespace."""
    of_teams = (
        quota
        for team in settings.teams
        for quota in (
            _resources(team, release, groups, claims=_claims(settings)),
            _no_critical_pods(team, release),
            _container_limits(team, release, groups),
        )
    )
    return (*of_teams, _daemon_defaults(release))


def _daemon_defaults(release: ReleaseManifest) -> Manifest:
    common = labels("quotas", version=release.platform)
    spec = {"limits": [{"type": "Container", **UNSIZED}]}
    return api_object("v1", "LimitRange", "containers", namespace=GPU_NAMESPACE, labels=common, spec=spec)


def _claims(settings: StackSettings) -> int:
    """The claims of datasets, runs and Lustre: a pod's own claim would make a volume that nothing ever deletes."""
    return 2 if settings.storage.lustre is None else 3


def _resources(team: Team, release: ReleaseManifest, groups: NodeGroups, *, claims: int) -> Manifest:
    gpus = str(reachable_gpus(team, groups))
    hard = {f"requests.{GPU_RESOURCE}": gpus, "persistentvolumeclaims": str(claims), **_COUNTS}
    return _limit("ResourceQuota", "team", team, release, {"hard": hard})


def _no_critical_pods(team: Team, release: ReleaseManifest) -> Manifest:
    """A pod may name any priority class there is; pods of these would push the platform off its nodes."""
    selector = {"scopeName": "PriorityClass", "operator": "In", "values": list(_CRITICAL)}
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [selector]}}
    return _limit("ResourceQuota", "no-critical-pods", team, release, spec)


def _container_limits(team: Team, release: ReleaseManifest, groups: NodeGroups) -> Manifest:
    """Defaults for a container without resources, and the largest node as its maximum.

    Cores are limited by the node only: a limit below what is idle slows a loader down and helps no other pod. Memory is
    not compressible, so a container that needs more than the default has to say so.
    """
    cores = str(max(group.instance.vcpus for group in groups.all()))
    memory_gib = max(group.instance.memory_gib for group in groups.all())
    limits = {
        "type": "Container",
        "defaultRequest": {"cpu": "250m", "memory": "512Mi"},
        "default": {"cpu": cores, "memory": "2Gi"},
        "max": {"cpu": cores, "memory": f"{memory_gib}Gi"},
    }
    return _limit("LimitRange", "containers", team, release, {"limits": [limits]})


def _limit(kind: str, name: str, team: Team, release: ReleaseManifest, spec: Manifest) -> Manifest:
    common = labels("quotas", version=release.platform, team=team.name)
    return api_object("v1", kind, name, namespace=team.name, labels=common, spec=spec)
