"""The log shipper: its scope on the node, and real logs through a real Fluent Bit to CloudWatch's and Loki's APIs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import BotoCoreError

from infra.spec.manifest import Manifest
from infra.spec.settings import StackSettings
from infra.spec.settings.logs import LogSettings
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.engines.fluent_bit import ContainerLog, find_fluent_bit, shipping
from tests.engines.loki import loki
from tests.engines.ports import free_port
from tests.infra.aws.graphs import settings_of
from tests.platform_charts.charts.releases import installs_of
from training.cluster.loki_logs import LokiLogs
from training.cluster.shipped_logs import find_lines
from training.cluster.shipped_query import LogQuery, ShippedRecord

GROUP = "/rtp/rtp-dev/containers"
SECONDS = 60.0
QUERY = LogQuery(namespace="research", job="digits", since=datetime(2026, 11, 1, tzinfo=UTC), container="ray-worker")
STRUCTURED = {"time": "2026-11-21T08:00:02.000Z", "level": "info", "message": "ä {}", "rank": 1, "step": None}
RAY = "\x1b[36m(TrainWorker pid=41)\x1b[0m "
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/a.py", line 3, in <module>',
    "    f(1 / 0)",
    "      ~~^~~",
    "ZeroDivisionError: division by zero",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "/b.py", line 4, in g',
    "ValueError: x",
)
LINES = [
    "Ray started",
    json.dumps(STRUCTURED, ensure_ascii=False),
    *TRACEBACK,
    "next",
    *(RAY + one for one in TRACEBACK),
]
EXPECTED = [*LINES[:2], "\n".join(TRACEBACK), "next", "\n".join(RAY + one for one in TRACEBACK)]


def with_logs(**logs: Any) -> StackSettings:  # noqa: ANN401
    return settings_of("dev").model_copy(update={"logs": LogSettings(**logs)})


def values(settings: StackSettings) -> Manifest:
    return installs_of(settings)["fluent-bit"].values


def test_it_runs_on_every_node_reads_logs_and_writes_to_its_own_folder_only() -> None:
    found = values(with_logs())
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in found["daemonSetVolumeMounts"]}
    assert mounts == {"/var/log": True, "/var/lib/fluent-bit": False}
    security = found["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    assert found["tolerations"] == [{"operator": "Exists"}]


def test_the_output_is_that_of_the_settings_and_limited_on_the_disk() -> None:
    assert "fluent-bit" not in installs_of(with_logs(destination="none"))
    assert "storage.total_limit_size 1G" in values(with_logs())["config"]["outputs"]
    for url, lines in (("https://l.io", {"Port 443", "Tls On"}), ("http://l:3100", {"Port 3100", "Tls Off"})):
        output = values(with_logs(destination="loki", loki_url=url))["config"]["outputs"].split("\n    ")
        assert {*lines, "storage.total_limit_size 1G"} <= {line.strip() for line in output}, url


def pod(name: str, **labels: str) -> Manifest:
    metadata = {"name": name, "namespace": "research", "labels": labels, "annotations": {"secret": "kept out"}}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"name": "ray-worker"}]}, "status": {}}


def container_logs() -> list[ContainerLog]:
    """Two containers' logs: of a job, with both kinds of lines and tracebacks, and of a pod without our labels."""
    labels = {JOB_LABEL: "digits", "ray-train-platform/team": "research", "other": "kept out"}
    numbered = [(f"2026-11-21T08:00:{index:02d}.123456789Z", line) for index, line in enumerate(LINES)]
    return [
        ContainerLog(pod=pod("digits-a-worker-1", **labels), container="ray-worker", lines=numbered),
        ContainerLog(pod=pod("other"), container="ray-worker", lines=[("2026-11-21T08:00:00.1Z", "no job")]),
    ]


def wait_for(read: Callable[[], Sequence[object]], count: int, messages: Path) -> None:
    end = time.monotonic() + SECONDS
    while len(read()) < count:
        assert time.monotonic() < end, messages.read_text()[-3000:]
        time.sleep(0.1)


@contextmanager
def cloudwatch(folder: Path) -> Iterator[tuple[int, Any]]:
    """CloudWatch Logs with TLS, which Fluent Bit insists on: a port of moto's, and a client."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port), "--ssl"]
    client = boto3.client(
        "logs",
        endpoint_url=f"https://127.0.0.1:{port}",
        verify=False,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    with (
        folder.joinpath("moto.log").open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as server,
    ):
        try:
            end = time.monotonic() + SECONDS
            while True:
                try:
                    client.create_log_group(logGroupName=GROUP)
                    break
                except BotoCoreError:
                    assert time.monotonic() < end, folder.joinpath("moto.log").read_text()
            yield port, client
        finally:
            server.kill()


class Events:
    """Events of CloudWatch as a store."""

    place = "moto"

    def __init__(self, events: Sequence[dict[str, Any]]) -> None:
        self._events = events

    def search(self, query: LogQuery) -> Iterator[ShippedRecord]:
        """All events."""
        del query
        return (ShippedRecord(event["timestamp"] * 10**6, event["message"]) for event in self._events)


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_logs_arrive_in_cloudwatch_and_are_found_again(tmp_path: Path) -> None:
    find_fluent_bit()
    config = values(with_logs())["config"]
    with warnings.catch_warnings(), cloudwatch(tmp_path) as (port, client):
        output = {"endpoint": "127.0.0.1", "port": str(port), "tls.verify": "Off"}

        def events() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = client.filter_log_events(logGroupName=GROUP)["events"]
            return found

        with shipping(config, tmp_path, container_logs(), output=output) as messages:
            wait_for(events, len(EXPECTED) + 1, messages)
        found = events()
        streams = {event["logStreamName"] for event in found}
    assert streams == {"research.digits-a-worker-1.ray-worker", "research.other.ray-worker"}
    (attempt,) = find_lines(Events(found), QUERY).attempts
    assert list(attempt.lines) == EXPECTED
    assert attempt.first == datetime(2026, 11, 21, 8, 0, 0, 123000, UTC)
    keys = {key for event in found for key in json.loads(event["message"])}
    assert keys == {"stream", "log", "record", "namespace", "pod", "container", "node", "team", "job"}


def test_logs_arrive_in_loki_and_are_found_again(tmp_path: Path) -> None:
    find_fluent_bit()
    with loki() as server:
        config = values(with_logs(destination="loki", loki_url=server.url))["config"]
        with shipping(config, tmp_path, container_logs(), output={}) as messages:
            wait_for(lambda: server.lines, len(EXPECTED) + 1, messages)
        (attempt,) = find_lines(LokiLogs(url=server.url, cluster="rtp-dev"), QUERY).attempts
        labels = {frozenset(labels) for labels, _, _ in server.lines}
    assert list(attempt.lines) == EXPECTED
    assert labels == {frozenset({"cluster", "namespace", "container", *more}) for more in ((), ("team", "job"))}
