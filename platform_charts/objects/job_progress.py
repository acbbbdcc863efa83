"""Runs `platform_charts.images.job_progress` on the cluster: the columns of `kubectl get rayjobs` that KubeRay does not fill."""

from __future__ import annotations

from infra.spec.cluster_names import JOB_COLUMNS, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from infra.spec.release import ReleaseManifest
from platform_charts.objects.access import rule
from platform_charts.objects.watcher import watcher_objects

_NAME = "job-progress"

_PROMETHEUS = f"http://kube-prometheus-stack-prometheus.{MONITORING_NAMESPACE}.svc:9090"
"""The Service of the chart with the name override of `platform_charts.charts.kube_prometheus_stack`."""

_RULES = (
    # `patch` also reaches labels and other annotations; an admission policy keeps everybody but the operators off the spec.
    rule("ray.io", ("rayjobs",), ("list", "patch")),
    rule("kueue.x-k8s.io", ("workloads",), ("list",)),
)


def progress_objects(release: ReleaseManifest, *, registry: str) -> tuple[Manifest, ...]:
    """The program with what it may do.

    Args:
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
    """
    columns = (f"--{column.replace(' ', '-')}={key}" for column, key in JOB_COLUMNS.items())
    return watcher_objects(_NAME, [f"--prometheus={_PROMETHEUS}", *columns], release, registry=registry, rules=_RULES)
