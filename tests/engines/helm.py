"""Helm and chart archives: render a chart with our values."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import yaml

from infra.spec.release import load_release
from platform_charts.charts.archives import ARCHIVES, archive_path
from tests.engines.report_table import ran, skipped
from tests.processes import run_command

CHART_NAME = "Helm charts"
HELM_NAME = "Helm"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C loader where available: charts render to megabytes."""


def find_helm() -> str:
    """Find the program; skips without it."""
    found = os.environ.get("HELM") or shutil.which("helm")
    if found is None:
        skipped(HELM_NAME, "no helm on PATH", "install helm 4, or set HELM=/path/to/helm")
    ran(HELM_NAME)
    return found


def find_archive(chart: str) -> Path:
    """Find a chart's archive, in the pinned version or else in any; skips without it."""
    folders = [Path(folder) for folder in (os.environ.get("HELM_CHARTS"), ARCHIVES) if folder]
    found = [path for folder in folders for path in sorted(folder.glob(f"{chart}-[0-9v]*.tgz"))]
    pinned = archive_path(chart, load_release().charts[chart]).name
    found.sort(key=lambda path: path.name == pinned)
    if not found:
        enable = "make charts, or set HELM_CHARTS=/path/to/folder with archives"
        skipped(CHART_NAME, f"no archive of {chart}", enable)
    ran(CHART_NAME)
    return found[-1]


def find_pinned_archive(chart: str) -> Path:
    """Find a chart's archive in the pinned version; skips without it."""
    archive, pinned = find_archive(chart), archive_path(chart, load_release().charts[chart]).name
    if archive.name != pinned:
        skipped(CHART_NAME, f"found {archive.name} instead of {pinned}", "make charts")
    return archive


def template(helm: str, archive: Path, values: dict[str, Any], *, name: str, namespace: str) -> list[Any]:
    """Render a chart for a cluster of the release's minor version, with hooks and without CRDs."""
    command = [helm, "template", name, str(archive), "--namespace", namespace, "--values", "-", "--skip-crds"]
    served = ["--kube-version", f"{load_release().kubernetes.version}.0", "--api-versions", "monitoring.coreos.com/v1"]
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "PATH": os.environ["PATH"]}
        ended = run_command([*command, *served], env=environment, given=yaml.safe_dump(values))
    assert ended.returncode == 0, ended.stderr
    return [one for one in yaml.load_all(ended.stdout, Loader=_LOADER) if one]
