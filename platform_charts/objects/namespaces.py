"""Namespaces and their Pod Security levels."""

from __future__ import annotations

from typing import Literal

from infra.spec.cluster_names import (
    DATA_NAMESPACE,
    GPU_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    REAPER_NAMESPACE,
    SSO_NAMESPACE,
)
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings

Level = Literal["privileged", "baseline", "restricted"]

LEVELS: dict[str, Level] = {
    MLFLOW_NAMESPACE: "restricted",
    # Third-party charts whose pods may not comply with `restricted`. The node exporter, which needs the host, is in
    # `gpu-system`.
    MONITORING_NAMESPACE: "baseline",
    KUBERAY_NAMESPACE: "restricted",
    KUEUE_NAMESPACE: "restricted",
    # Device plugins, the DCGM exporter and the node exporter mount host paths, which no other level allows.
    GPU_NAMESPACE: "privileged",
    DATA_NAMESPACE: "restricted",
    SSO_NAMESPACE: "restricted",
    REAPER_NAMESPACE: "restricted",
}
"""Pod Security level by platform namespace; a team's is always `restricted`."""


def platform_namespaces(settings: StackSettings) -> tuple[str, ...]:
    """Names of the platform's and the teams' namespaces."""
    return (*_levels(settings), *(team.name for team in settings.teams))


def _levels(settings: StackSettings) -> dict[str, Level]:
    """`LEVELS` without what the environment does not have."""
    optional = {SSO_NAMESPACE: settings.single_sign_on, REAPER_NAMESPACE: settings.reaper}
    return {name: level for name, level in LEVELS.items() if optional.get(name, True) is not None}


def kubernetes_minor(settings: StackSettings, release: ReleaseManifest) -> str:
    """Kubernetes minor version of the environment, e.g. 1.35."""
    return settings.cluster.kubernetes or release.kubernetes.version


def namespaces(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """The platform's and the teams' namespaces.

    The Pod Security level is pinned to the Kubernetes minor, so that an upgrade does not reject running workloads.
    """
    minor = kubernetes_minor(settings, release)
    ours = (_namespace(name, level, minor, release.platform) for name, level in _levels(settings).items())
    teams = (_namespace(team.name, "restricted", minor, release.platform, team=team.name) for team in settings.teams)
    return (*ours, *teams)


def _namespace(name: str, level: Level, minor: str, version: str, *, team: str | None = None) -> Manifest:
    # A `baseline` namespace warns and audits at `restricted`.
    audit_level: Level = "privileged" if level == "privileged" else "restricted"
    security = {
        f"pod-security.kubernetes.io/{mode}{suffix}": value
        for mode, mode_level in (("enforce", level), ("audit", audit_level), ("warn", audit_level))
        for suffix, value in (("", mode_level), ("-version", f"v{minor}"))
    }
    component = name if team is None else "team"
    return api_object("v1", "Namespace", name, labels={**labels(component, version=version, team=team), **security})
