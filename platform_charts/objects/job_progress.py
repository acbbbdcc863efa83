"""Runs `platform_charts.images.job_progress` on the cluster: the columns of `kubectl get rayjobs` that KubeRay does not fill."""

from __future__ import annotations

from infra.spec.cluster_names import JOB_COLUMNS, MONITORING_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from platform_charts.container_resources import CONTAINERS
from platform_charts.objects.access import cluster_role, rule
from platform_charts.placement import SYSTEM_NODES

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
    common = labels(_NAME, version=release.platform)
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": MONITORING_NAMESPACE}
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "job_progress"],
        "args": [
            f"--prometheus={_PROMETHEUS}",
            *(f"--{column.replace(' ', '-')}={key}" for column, key in JOB_COLUMNS.items()),
        ],
        "resources": CONTAINERS[_NAME].manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    pod = {
        "serviceAccountName": _NAME,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        # A process without a handler for SIGTERM ignores it as the first one of a container, and has nothing to finish.
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
        "template": {"metadata": {"labels": dict(common)}, "spec": pod},
    }
    return (
        api_object("v1", "ServiceAccount", _NAME, namespace=MONITORING_NAMESPACE, labels=common),
        *cluster_role(_NAME, _RULES, (subject,), labels=common),
        api_object("apps/v1", "Deployment", _NAME, namespace=MONITORING_NAMESPACE, labels=common, spec=spec),
    )
