"""Helm, and the archives of the charts: what a chart makes of our values."""

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
"""What a chart makes has megabytes."""


def find_helm() -> str:
    """Path of the program, or skip."""
    found = os.environ.get("HELM") or shutil.which("helm")
    if found is None:
        skipped(HELM_NAME, "no helm on PATH", "install helm 4, or name it: HELM=/path/to/helm")
    ran(HELM_NAME)
    return found


def find_archive(chart: str) -> Path:
    """A chart's archive, of whatever version is at hand, or skip."""
    folders = [Path(folder) for folder in (os.environ.get("HELM_CHARTS"), ARCHIVES) if folder]
    found = [path for folder in folders for path in sorted(folder.glob(f"{chart}-[0-9v]*.tgz"))]
    if not found:
        enable = "`make charts`, or archives in a folder: HELM_CHARTS=/path/to/folder"
        skipped(CHART_NAME, f"no archive of {chart}", enable)
    ran(CHART_NAME)
    return found[-1]


def template(helm: str, archive: Path, values: dict[str, Any], *, name: str, namespace: str, home: Path) -> list[Any]:
    """What Helm would send to a cluster of the release's minor, hooks included, definitions not.

    Args:
        helm: the program.
        archive: the chart.
        values: its values.
        name: name of the release.
        namespace: where it goes.
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
