"""What Prometheus scrapes of ours: Ray, whose own metrics and the trainer's come through the same ports.

Operator and Kueue bring their monitors with their charts. MLflow's server has no metrics under uvicorn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings

HEAD_PORTS = ("metrics", "as-metrics", "dash-metrics")
"""Names, from `names.RAY_PORTS`, of what a head exports: of Ray and the trainer, of the autoscaler, of the dashboard."""

WORKER_PORTS = ("metrics",)

_RELABELINGS = (
    ("ray.io/cluster", "ray_io_cluster"),
    (f"{LABEL_PREFIX}/team", "team"),
    (f"{LABEL_PREFIX}/job", "training_job"),
)
"""Pod label, and the label of its series. Ray's boards know `ray_io_cluster`; `job` is Prometheus's own, hence
`training_job`; `run` is a label the trainer's metrics have by themselves."""


def monitors(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """PodMonitors of Ray's heads and workers in all teams' namespaces.

    Pods and not services: a head has several services, and would be scraped once for each.
    """
    teams = [team.name for team in settings.teams]
    if not teams:
        return ()
    return (
        _pod_monitor("head", HEAD_PORTS, teams, release),
        _pod_monitor("worker", WORKER_PORTS, teams, release),
    )


def _pod_monitor(
    node_type: Literal["head", "worker"], ports: Sequence[str], teams: Sequence[str], release: ReleaseManifest
) -> Manifest:
    relabelings = [{"sourceLabels": [_meta(source)], "targetLabel": target} for source, target in _RELABELINGS]
    return api_object(
        "monitoring.coreos.com/v1",
        "PodMonitor",
        f"ray-{node_type}s",
        namespace=MONITORING_NAMESPACE,
        labels=labels("monitoring", version=release.platform),
        spec={
            "namespaceSelector": {"matchNames": list(teams)},
            "selector": {"matchLabels": {"ray.io/node-type": node_type}},
            "podMetricsEndpoints": [{"port": port, "interval": "15s", "relabelings": relabelings} for port in ports],
        },
    )


def _meta(label: str) -> str:
    """Prometheus's name of a pod's label (Prometheus, "kubernetes_sd_config")."""
    return "__meta_kubernetes_pod_label_" + "".join(one if one.isalnum() else "_" for one in label)
