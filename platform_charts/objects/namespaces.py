"""Namespaces, and what the Pod Security Standards let into each."""

from __future__ import annotations

from typing import Literal

from infra.spec.cluster_names import (
    GPU_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
)
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings

Level = Literal["privileged", "baseline", "restricted"]

LEVELS: dict[str, Level] = {
    MLFLOW_NAMESPACE: "restricted",
    # Charts of others run here whose pods nobody promised to keep `restricted`; none needs the host. What does, the
    # node exporter, stands in `gpu-system`.
    MONITORING_NAMESPACE: "baseline",
    KUBERAY_NAMESPACE: "restricted",
    KUEUE_NAMESPACE: "restricted",
    # Device plugins put their sockets into the kubelet's folder, the DCGM exporter reads the kubelet's pod resources,
    # the node exporter reads the host's /proc: host paths, which no other level allows.
    GPU_NAMESPACE: "privileged",
}
"""Level by namespace of the platform; a team's is always `restricted`."""


def platform_namespaces(settings: StackSettings) -> tuple[str, ...]:
    """Names of all namespaces of ours, the teams' last."""
    return (*LEVELS, *(team.name for team in settings.teams))


def kubernetes_minor(settings: StackSettings, release: ReleaseManifest) -> str:
    """The minor the environment's control plane has, e.g. 1.35."""
    return settings.cluster.kubernetes or release.kubernetes.version


def namespaces(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """Every namespace of ours.

    The level is pinned to the Kubernetes minor: a new one is not to refuse pods that ran the day before. NetworkPolicies
    select namespaces by `kubernetes.io/metadata.name`, which the API server sets itself.
    """
    minor = kubernetes_minor(settings, release)
    ours = (_namespace(name, level, minor, release.platform) for name, level in LEVELS.items())
    teams = (_namespace(team.name, "restricted", minor, release.platform, team=team.name) for team in settings.teams)
    return (*ours, *teams)


def _namespace(name: str, level: Level, minor: str, version: str, *, team: str | None = None) -> Manifest:
    # What is refused needs no warning, and a namespace below `restricted` tells who deploys what is missing.
    told: Level = "privileged" if level == "privileged" else "restricted"
    security = {
        f"pod-security.kubernetes.io/{mode}{suffix}": value
        for mode, at in (("enforce", level), ("audit", told), ("warn", told))
        for suffix, value in (("", at), ("-version", f"v{minor}"))
    }
    component = name if team is None else "team"
    return api_object("v1", "Namespace", name, labels={**labels(component, version=version, team=team), **security})
