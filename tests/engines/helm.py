"""Helm and chart archives: render a chart with our values."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from platform_charts.charts.archives import ARCHIVES
from tests.engines.report_table import ran, skipped

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
    """Find a chart's archive in any version; skips without it."""
    folders = [Path(folder) for folder in (os.environ.get("HELM_CHARTS"), ARCHIVES) if folder]
    found = [path for folder in folders for path in sorted(folder.glob(f"{chart}-[0-9v]*.tgz"))]
    if not found:
        enable = "make charts, or set HELM_CHARTS=/path/to/folder with archives"
        skipped(CHART_NAME, f"no archive of {chart}", enable)
    ran(CHART_NAME)
    return found[-1]


def template(helm: str, archive: Path, values: dict[str, Any], *, name: str, namespace: str, home: Path) -> list[Any]:
    """Render a chart for a cluster of the release's minor version, with hooks and without CRDs.

    Args:
        helm: the program.
        archive: the chart.
        values: its values.
        name: release name.
        namespace: release namespace.
        home: folder for Helm's own files.
    """
    file = home / f"{name}.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    ended = subprocess.run(
        [
            *(helm, "template", name, str(archive), "--namespace", namespace, "--values", str(file), "--skip-crds"),
            *("--kube-version", "1.35.0", "--api-versions", "monitoring.coreos.com/v1"),
        ],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [one for one in yaml.load_all(ended.stdout, Loader=_LOADER) if one]
