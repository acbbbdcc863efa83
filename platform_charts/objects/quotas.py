"""What a team's namespace may hold: a second fence behind Kueue's queue, which also stands when Kueue does not."""

from __future__ import annotations

from infra.spec.catalog import Catalog
from infra.spec.cluster_names import PLATFORM_PRIORITY
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.shares import GPU, reachable_gpus

_COUNTS = {
    # Against loops that submit for ever, which would fill etcd and starve the operator; nobody works with so many.
    "pods": "1000",
    "configmaps": "1000",
    "count/rayjobs.ray.io": "500",
    "count/rayclusters.ray.io": "500",
    "count/jobs.batch": "500",
    # Those of the datasets and the runs: a pod's own claim would be a volume that nobody pays attention to.
    "persistentvolumeclaims": "2",
    # A RayCluster may give its head any kind of service; these two would put Ray's dashboard outside the cluster.
    "services.loadbalancers": "0",
    "services.nodeports": "0",
}

_CRITICAL = (PLATFORM_PRIORITY, "system-cluster-critical", "system-node-critical")


def quotas(settings: StackSettings, release: ReleaseManifest, catalog: Catalog) -> tuple[Manifest, ...]:
    """ResourceQuotas and LimitRange of every team's namespace."""
    return tuple(
        found
        for team in settings.teams
        for found in (
            _resources(team, settings, release, catalog),
            _no_critical_pods(team, release),
            _container_limits(team, settings, release, catalog),
        )
    )


def _resources(team: Team, settings: StackSettings, release: ReleaseManifest, catalog: Catalog) -> Manifest:
    gpus = reachable_gpus(team, settings, catalog)
    return _limit("ResourceQuota", "team", team, release, {"hard": {f"requests.{GPU}": str(gpus), **_COUNTS}})


def _no_critical_pods(team: Team, release: ReleaseManifest) -> Manifest:
    """A pod may name any priority class there is; these ones would push the platform off its nodes."""
    selector = {"scopeName": "PriorityClass", "operator": "In", "values": list(_CRITICAL)}
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [selector]}}
    return _limit("ResourceQuota", "no-critical-pods", team, release, spec)


def _container_limits(team: Team, settings: StackSettings, release: ReleaseManifest, catalog: Catalog) -> Manifest:
    """Defaults for a container that says nothing, and the largest node as the most that makes sense.

    Cores are limited by the node only: a limit below what is idle slows a loader down and helps nobody. Memory is not
    compressible, so that whoever needs more than the default has to say so.
    """
    types = {settings.system_nodes.instance_type, *(group.instance_type for group in settings.gpu_groups)}
    machines = [catalog.find(name) for name in types]
    cores = str(max(machine.vcpus for machine in machines))
    limits = {
        "type": "Container",
        "defaultRequest": {"cpu": "250m", "memory": "512Mi"},
        "default": {"cpu": cores, "memory": "2Gi"},
        "max": {"cpu": cores, "memory": f"{max(machine.memory_gib for machine in machines)}Gi"},
    }
    return _limit("LimitRange", "containers", team, release, {"limits": [limits]})


def _limit(kind: str, name: str, team: Team, release: ReleaseManifest, spec: Manifest) -> Manifest:
    marks = labels("quotas", version=release.platform, team=team.name)
    return api_object("v1", kind, name, namespace=team.name, labels=marks, spec=spec)
