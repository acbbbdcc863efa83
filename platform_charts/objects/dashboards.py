"""Grafana's dashboards, from the files that `python -m observability.dashboards` writes, as ConfigMaps that Grafana's sidecar reads."""

from __future__ import annotations

import json
from pathlib import Path

from infra.spec.cluster_names import DASHBOARD_FOLDER, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest

DASHBOARDS = Path(__file__).with_suffix("")
"""Folder of the files, one for each dashboard."""

SIDECAR_LABEL = "grafana_dashboard"
"""The label by which kube-prometheus-stack's sidecar finds dashboards."""

FOLDER = "Ray Train Platform"
"""Folder in Grafana."""


def dashboards(release: ReleaseManifest) -> tuple[Manifest, ...]:
    """One ConfigMap for each dashboard."""
    return tuple(
        api_object(
            "v1",
            "ConfigMap",
            f"dashboard-{file.stem}",
            namespace=MONITORING_NAMESPACE,
            labels={**labels("monitoring", version=release.platform), SIDECAR_LABEL: "1"},
            annotations={DASHBOARD_FOLDER: FOLDER},
            data={file.name: _compact(file.read_text(encoding="utf-8"))},
        )
        for file in sorted(DASHBOARDS.glob("*.json"))
    )


def _compact(text: str) -> str:
    """The document without white space, which is a third of it; Pulumi's state has it twice."""
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
