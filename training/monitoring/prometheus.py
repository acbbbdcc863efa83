"""The program, the configuration and the rules of a Prometheus for the runs of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from infra.spec.manifest_yaml import write_document
from observability.alerts.checkpoints import CHECKPOINTS
from observability.alerts.goodput import GOODPUT
from observability.alerts.model import Group
from observability.alerts.run_cost import RUN_COST
from observability.alerts.training import TRAINING
from training.errors import PreflightError

RUN_GROUPS: tuple[Group, ...] = (TRAINING, GOODPUT, RUN_COST, CHECKPOINTS)
"""The rules about runs. Those about nodes, queues and services would miss what exists on a cluster only."""

_SCRAPE_SECONDS = 5
_RETENTION = "30d"
_VARIABLE = "PROMETHEUS"


def find_prometheus(environment: Mapping[str, str] = os.environ) -> Path:
    """The program: `$PROMETHEUS`, or on PATH.

    Raises:
        PreflightError: there is none.
    """
    named = environment.get(_VARIABLE)
    found = shutil.which(named or "prometheus", path=environment.get("PATH"))
    if found is None:
        where = f"{_VARIABLE}={named} is not executable" if named else "no `prometheus` on PATH"
        raise PreflightError(where, remedy=f"apt-get install prometheus, or set {_VARIABLE}=/path/to/prometheus")
    return Path(found)


def write_configuration(folder: Path, *, targets: Path, scrape_seconds: float = _SCRAPE_SECONDS) -> Path:
    """Write configuration and rules into the folder; returns the configuration's file.

    Args:
        folder: of local monitoring.
        targets: file with the targets, which Prometheus reads again when it changes.
        scrape_seconds: interval of scrapes and of the rules' evaluation.
    """
    rules = folder / "rules.yml"
    rules.write_text(write_document({"groups": [group.manifest() for group in RUN_GROUPS]}), encoding="utf-8")
    interval = f"{int(1000 * scrape_seconds)}ms"
    # On a cluster Ray's metrics agent adds the prefix; rules and dashboards are written for it.
    prefixed = {"source_labels": ["__name__"], "target_label": "__name__", "replacement": "ray_${1}"}
    configuration = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(rules.resolve())],
        "scrape_configs": [
            {
                "job_name": "runs",
                "file_sd_configs": [{"files": [str(targets.resolve())], "refresh_interval": "1m"}],
                "metric_relabel_configs": [prefixed],
            }
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(write_document(configuration), encoding="utf-8")
    return file


def prometheus_command(program: Path, configuration: Path, *, port: int) -> list[str]:
    """The command that serves on loopback."""
    return [
        str(program),
        f"--config.file={configuration}",
        f"--storage.tsdb.path={configuration.parent / 'data'}",
        f"--storage.tsdb.retention.time={_RETENTION}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
