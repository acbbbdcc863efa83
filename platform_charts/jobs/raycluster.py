"""A team's long-lived cluster, as KubeRay's RayCluster."""

from __future__ import annotations

from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.cluster import Scaling, ray_cluster_spec
from platform_charts.jobs.placement import find_team, place_cluster
from platform_charts.jobs.pods import Workspace
from platform_charts.jobs.request import ClusterRequest, Target


def render_cluster(request: ClusterRequest, target: Target) -> tuple[Manifest, ...]:
    """The RayCluster, with Ray's autoscaler v2 in its head.

    It has no queue label: Kueue admits a cluster that scales only as an elastic job, behind an alpha feature gate. The
    quota of its namespace limits it.

    Raises:
        SettingsError: the request names a team or group that the stack does not have.
        RefusedError: no group is large enough; the message has the numbers.
    """
    team, placement = find_team(request.team, target), place_cluster(request, target)
    workspace = Workspace(
        name=request.name, team=team, priority=request.priority, target=target, settings=None, run=None
    )
    scaling = Scaling(
        smallest=request.min_workers, largest=request.max_workers, idle_seconds=round(request.idle_minutes * 60)
    )
    spec = ray_cluster_spec(workspace, placement, scaling)
    return (
        api_object(
            "ray.io/v1", "RayCluster", request.name, namespace=team.namespace, labels=workspace.labels, spec=spec
        ),
    )
