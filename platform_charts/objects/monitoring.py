"""PodMonitors for Ray, whose ports export Ray's and the trainer's metrics.

The charts of KubeRay and Kueue have their own monitors. MLflow's server exports no metrics under uvicorn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import TEAM_LABEL, Manifest, api_object, labels
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings

HEAD_PORTS = ("metrics", "as-metrics", "dash-metrics")
"""Metrics ports of a head, from `cluster_names.RAY_PORTS`: Ray and the trainer, autoscaler, dashboard."""

WORKER_PORTS = ("metrics",)

_RELABELINGS = (
    ("ray.io/cluster", "ray_io_cluster"),
    (TEAM_LABEL, "team"),
    (f"{LABEL_PREFIX}/job", "training_job"),
)
"""Pod labels and target labels. Ray's dashboards use `ray_io_cluster`; `training_job`, because `job` is Prometheus's own;
the trainer's metrics already have the label `run`."""


def monitors(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """PodMonitors for Ray's heads and workers in all teams' namespaces.

    No ServiceMonitors: a head has several services and would be scraped once for each.
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
    """Prometheus's meta label for a pod label (Prometheus, "kubernetes_sd_config")."""
    return "__meta_kubernetes_pod_label_" + "".join(one if one.isalnum() else "_" for one in label)
