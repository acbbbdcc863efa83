"""A real Prometheus that scrapes one target, or that has recorded data."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.lifecycle.sandbox.modules import PROMETHEUS
from tests.engines.built import find_program
from tests.engines.ports import free_port
from tests.engines.promtool import promtool
from tests.engines.report_table import ran, skipped
from tests.engines.servers import answers, running

NAME = "Prometheus"
_INTERVAL = "200ms"
_RETENTION = "3650d"
"""Longer than the age of what tests record."""


@dataclass(frozen=True)
class Prometheus:
    """A server that answers queries at `url`."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query, each with `metric` (labels) and `value` (time, text of the number)."""
        result: list[dict[str, Any]] = self._get("/api/v1/query", query=expression)["result"]
        return result

    def types(self) -> dict[str, str]:
        """Type of every metric family that was scraped."""
        return {found["metric"]: found["type"] for found in self._get("/api/v1/targets/metadata")}

    def _get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON
        address = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - loopback
            return json.load(answer)["data"]


def program() -> Path:
    """Prometheus: `$PROMETHEUS`, the engines', or on PATH; skips without it."""
    found = find_program(PROMETHEUS, "prometheus")
    if found is None:
        skipped(NAME, "no prometheus found", "make engines, apt-get install prometheus, or set PROMETHEUS=/path")
    ran(NAME)
    return found


@contextmanager
def scraping(
    target: str,
    *,
    folder: Path,
    rules: Path | None = None,
    alertmanager: str | None = None,
    port: int | None = None,
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the URL `target` five times a second, with its data in `folder`.

    `rules` are evaluated as often as it scrapes. Alerts are sent to `alertmanager`, an address with its port, again every second.
    It listens on `port`, or on any that is free. Skips without the program.
    """
    parts = urllib.parse.urlsplit(target)
    scrape = {
        "job_name": "training",
        "metrics_path": parts.path,
        "static_configs": [{"targets": [parts.netloc]}],
    }
    config = {
        "global": {"scrape_interval": _INTERVAL, "scrape_timeout": _INTERVAL, "evaluation_interval": _INTERVAL},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": [scrape],
    }
    if alertmanager is not None:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    with _serving(folder, config, port=port) as server:
        yield server


@contextmanager
def recorded(samples: Path, *, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus with the samples of a file in OpenMetrics' format, and no others. Skips without the program."""
    refused = promtool("tsdb", "create-blocks-from", "openmetrics", samples, folder / "data", folder=folder)
    assert refused == ""
    with _serving(folder, {"global": {}}) as server:
        yield server


@contextmanager
def _serving(folder: Path, configuration: Mapping[str, object], *, port: int | None = None) -> Iterator[Prometheus]:
    binary = program()
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    address = f"127.0.0.1:{port or free_port()}"
    log = folder / "prometheus.log"
    command = [
        str(binary),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--storage.tsdb.retention.time={_RETENTION}",
        f"--web.listen-address={address}",
        "--rules.alert.resend-delay=1s",
    ]
    with running(command, log=log, is_ready=lambda: answers(f"http://{address}/-/ready")):
        yield Prometheus(f"http://{address}")
