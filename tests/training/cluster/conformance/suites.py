"""Runs of the suite by its command, and what they recorded."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.kube.api import KubernetesApi
from platform_charts.objects.alert_rules import RULES
from tests.engines.ports import free_port
from tests.engines.prometheus import Prometheus, scraping
from tests.engines.servers import Handler, http_server
from training.cli import main
from training.cluster.conformance.probes.prometheus import WATCHDOG
from training.cluster.objects import RAY_JOB

WATCHDOG_GROUP = {
    "name": "general.rules",
    "rules": [{"alert": WATCHDOG, "expr": "vector(1)", "labels": {"severity": "none"}}],
}
"""The group of kube-prometheus-stack with the alert that always fires."""


@dataclass(frozen=True)
class Ran:
    """A run of the suite."""

    status: int
    record: dict[str, Any]

    def verdicts(self) -> dict[str, str]:
        return {one["name"]: one["verdict"] for one in self.record["checks"]}

    def failed(self) -> dict[str, str]:
        """What was found by the checks that failed."""
        return {one["name"]: one["found"] for one in self.record["checks"] if one["verdict"] == "failed"}

    def found(self, check: str) -> str:
        (found,) = [one["found"] for one in self.record["checks"] if one["name"] == check]
        return str(found)


def run_suite(*words: str, folder: Path) -> Ran:
    """Run the command in this process; its working folder must be `folder`."""
    before = set(folder.glob(".local/conformance/dev/*.json"))
    status = main(["conformance", *words])
    made = set(folder.glob(".local/conformance/dev/*.json")) - before
    assert len(made) == 1, "one record for each run of the suite"
    return Ran(status=status, record=json.loads(made.pop().read_text()))


@contextmanager
def receiver(status: int = 200) -> Iterator[str]:
    """The address of a server that answers Prometheus with a status, as Alertmanager does."""

    class Receiver(Handler):
        def do_POST(self) -> None:  # noqa: N802
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(status)

    with http_server(Receiver) as url:
        yield url.removeprefix("http://")


@contextmanager
def prometheus_with_rules(folder: Path, rules: Path = RULES, *, alertmanager: str) -> Iterator[Prometheus]:
    """A real Prometheus that scrapes itself, evaluates rules, and sends notifications to an Alertmanager."""
    folder.mkdir(parents=True, exist_ok=True)
    document = yaml.safe_load(rules.read_text())
    document["groups"].append(WATCHDOG_GROUP)
    file, port = folder / "all-rules.yaml", free_port()
    file.write_text(yaml.safe_dump(document))
    own = f"http://127.0.0.1:{port}/metrics"
    with scraping(own, folder=folder, rules=file, alertmanager=alertmanager, port=port) as server:
        yield server


def cases_of(junit: str) -> dict[str, ET.Element]:
    """The test cases of a document of JUnit's by name."""
    return {str(one.get("name")): one for one in ET.fromstring(junit).iter("testcase")}  # noqa: S314 - our own


def suite_jobs(cluster: KubernetesApi) -> list[str]:
    """Names of the suite's jobs that nobody has deleted; an operator may still be busy with one that somebody has."""
    return [
        str(one["metadata"]["name"])
        for one in cluster.items(*RAY_JOB, namespace="research")
        if "deletionTimestamp" not in one["metadata"]
    ]
