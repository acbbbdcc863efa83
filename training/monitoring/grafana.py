"""A Grafana with the stack's dashboards, where the program is installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from infra.spec.manifest_yaml import write_document

DASHBOARDS = Path(__file__).parents[2] / "platform_charts" / "objects" / "dashboards"
"""Written by `python -m observability.dashboards`."""

_HOME_VARIABLE = "GRAFANA_HOME"
_HOME = "/usr/share/grafana"
"""Of the packages that Grafana publishes."""


def find_grafana(environment: Mapping[str, str] = os.environ) -> tuple[Path, Path] | None:
    """The program and its home folder; None if it is not installed."""
    home = Path(environment.get(_HOME_VARIABLE, _HOME))
    program = shutil.which("grafana", path=f"{home / 'bin'}{os.pathsep}{environment.get('PATH', '')}")
    return (Path(program), home) if program and home.is_dir() else None


def write_provisioning(folder: Path, *, prometheus_url: str, dashboards: Path = DASHBOARDS) -> Path:
    """Write the data source and the folder of dashboards; returns the folder of the provisioning."""
    provisioning = folder / "grafana" / "provisioning"
    source = {"name": "Prometheus", "type": "prometheus", "url": prometheus_url, "access": "proxy", "isDefault": True}
    provider = {"name": "ray-train-platform", "type": "file", "options": {"path": str(dashboards.resolve())}}
    _write(provisioning / "datasources" / "prometheus.yaml", {"apiVersion": 1, "datasources": [source]})
    _write(provisioning / "dashboards" / "platform.yaml", {"apiVersion": 1, "providers": [provider]})
    return provisioning


def grafana_command(program: Path, home: Path) -> list[str]:
    """The command that serves."""
    return [str(program), "server", f"--homepath={home}"]


def grafana_environment(folder: Path, *, provisioning: Path, port: int) -> dict[str, str]:
    """Settings of a Grafana that only this machine reaches, and that asks for no login."""
    return {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str((folder / "grafana" / "data").resolve()),
        "GF_PATHS_LOGS": str((folder / "grafana" / "logs").resolve()),
        "GF_PATHS_PROVISIONING": str(provisioning.resolve()),
        "GF_AUTH_ANONYMOUS_ENABLED": "true",
        "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_ANALYTICS_REPORTING_ENABLED": "false",
        "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    }


def _write(file: Path, content: Mapping[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(write_document(content), encoding="utf-8")
