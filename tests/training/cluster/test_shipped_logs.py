"""Logs of pods that are gone, from CloudWatch (moto) and from a double of Loki, and of pods that run.

No pod of these tests has a log: a fake API answers in place of the API server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from kubernetes.client import ApiClient, Configuration
from moto import mock_aws

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.outputs import read_outputs
from tests.engines.loki import Loki, loki
from tests.engines.ports import free_port
from tests.training.cluster.team_cluster import dev_outputs
from training.cluster.cloudwatch_logs import CloudWatchLogs, filter_pattern
from training.cluster.loki_logs import LokiLogs, stream_selector
from training.cluster.rank_log import rank_log
from training.cluster.shipped_logs import LOKI_URL_VARIABLE, LogStore, find_lines, log_store_of
from training.cluster.shipped_query import LogQuery, ShippedRecord

LogsClient = Any
"""boto3 makes its classes at run time."""

GROUP = "/rtp/rtp-dev/containers"
NOW = datetime.now(UTC).replace(microsecond=0)
SINCE = NOW - timedelta(days=14)


def query(**changes: object) -> LogQuery:
    asked: dict[str, Any] = {"namespace": "research", "job": "digits", "since": SINCE, "container": "ray-worker"}
    return LogQuery(**{**asked, **changes})


def record(
    pod: str = "digits-a-worker-1", *, job: str = "digits", container: str = "ray-worker", **content: object
) -> str:
    where = {"stream": "stdout", "namespace": "research", "pod": pod, "container": container, "job": job}
    return json.dumps({**where, **content})


def at(minutes_ago: float) -> int:
    return int((NOW - timedelta(minutes=minutes_ago)).timestamp() * 1000)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of CloudWatch with the empty log group."""
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "test")
    with mock_aws():
        client = boto3.client("logs", region_name="us-east-1")
        client.create_log_group(logGroupName=GROUP)
        yield client


def put(client: LogsClient, stream: str, *events: tuple[int, str]) -> None:
    client.create_log_stream(logGroupName=GROUP, logStreamName=stream)
    listed = [{"timestamp": when, "message": message} for when, message in events]
    client.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=listed)


CLOUDWATCH = CloudWatchLogs(group=GROUP, region="us-east-1")


def test_the_newest_pods_lines_come_first(group: LogsClient) -> None:
    put(group, "research.old.ray-worker", (at(50), record("old", log="a")), (at(49), record("old", log="b")))
    put(group, "research.new.ray-worker", (at(9), record("new", log="c")))
    found = find_lines(CLOUDWATCH, query())
    assert [(one.pod, one.lines) for one in found.attempts] == [("new", ["c"]), ("old", ["a", "b"])]
    assert found.attempts[1].first == NOW - timedelta(minutes=50)
    assert found.is_complete


def test_lines_of_other_jobs_containers_and_times_are_dropped(group: LogsClient) -> None:
    old = int((SINCE - timedelta(hours=1)).timestamp() * 1000)
    others = (at(9), record(job="digits-2", log="another job's"))
    put(group, "research.x.ray-worker", (old, record(log="too old")), others)
    put(group, "research.y.ray-head", (at(9), record(container="ray-head", log="the head's")), (at(8), "not JSON"))
    put(group, "research.z.ray-worker", (at(7), record(log="ours")))
    assert [one.lines for one in find_lines(CLOUDWATCH, query()).attempts] == [["ours"]]
    wanted = (
        '{ ($.namespace = "research") && ($.job = "digits") && ($.container = "ray-worker") && ($.record.rank = 3) }'
    )
    assert filter_pattern(query(rank=3)) == wanted
    assert filter_pattern(query(container=None, pod="p")).endswith('&& ($.pod = "p") }')


def test_a_ranks_lines_are_its_json_records_verbatim(group: LogsClient) -> None:
    line = {"time": "2026-11-21T08:00:00.000Z", "level": "info", "message": "ä", "rank": 1, "step": None}
    put(group, "research.a.ray-worker", (at(9), record(record=line)), (at(8), record(record={**line, "rank": 0})))
    put(group, "research.b.ray-worker", (at(7), record(log="rank 1 as text")))
    assert find_lines(CLOUDWATCH, query(rank=1)).attempts[0].lines == [json.dumps(line, ensure_ascii=False)]


def test_every_page_is_read_and_a_missing_group_is_an_error_that_names_it(group: LogsClient) -> None:
    put(group, "research.a.ray-worker", *((at(30) + index, record(log=str(index))) for index in range(25)))
    store = CloudWatchLogs(group=GROUP, region="us-east-1", page=10)
    assert find_lines(store, query()).attempts[0].lines == [str(index) for index in range(25)]
    group.delete_log_group(logGroupName=GROUP)
    with pytest.raises(RefusedError, match=rf"{GROUP} in us-east-1: .*ResourceNotFound.*\n.*the stack makes the group"):
        find_lines(CLOUDWATCH, query())


class Endless:
    """A store whose pages never end."""

    place = "a store"

    def search(self, query: LogQuery) -> Iterator[ShippedRecord]:
        while True:
            yield ShippedRecord(time.time_ns(), record(log="again", job=query.job))


def test_a_search_ends_at_its_time_limit_and_says_so() -> None:
    found = find_lines(Endless(), query(), seconds=0.2)
    assert not found.is_complete
    assert len(found.attempts[0].lines) > 0


@pytest.fixture
def server() -> Iterator[Loki]:
    with loki() as one:
        yield one


def add(server: Loki, when_ns: int, line: str, **labels: str) -> None:
    known = {"cluster": "rtp-dev", "namespace": "research", "job": "digits", "container": "ray-worker", **labels}
    server.lines.append((known, when_ns, line))


def test_lokis_pages_are_followed_even_if_lines_share_a_time_or_are_equal(server: Loki) -> None:
    start = at(30) * 10**6
    for index in range(25):
        add(server, start + index // 4, record(log=str(index)))
    for _ in range(3):
        add(server, start + 9, record(log="same"))
    add(server, start, record(job="other", log="another job's"), job="other")
    store: LogStore = LokiLogs(url=server.url, cluster="rtp-dev", page=7)
    (attempt,) = find_lines(store, query()).attempts
    assert attempt.lines == [*(str(index) for index in range(25)), *["same"] * 3]
    assert len(server.queries) > 3
    assert stream_selector(query(rank=3), cluster="rtp-dev") == (
        '{cluster="rtp-dev",namespace="research",job="digits",container="ray-worker"} | json rank="record.rank" | rank="3"'
    )
    gone = LokiLogs(url=f"http://127.0.0.1:{free_port()}", cluster="rtp-dev")
    with pytest.raises(RefusedError, match=r"Loki at http://127.*\n.*RTP_LOKI_URL"):
        find_lines(gone, query())


def test_the_store_follows_the_stacks_outputs() -> None:
    outputs = {name: value for name, value in dev_outputs().items() if name != "logs"}
    loki_logs = {"destination": "loki", "loki_url": "http://loki:3100"}
    for logs, expected in (
        ({"logs": {"destination": "cloudwatch", "log_group": GROUP}}, CLOUDWATCH),
        ({"logs": loki_logs}, LokiLogs(url="http://here:1", cluster="rtp-dev")),
        ({"logs": {"destination": "none"}}, None),
        ({}, None),
    ):
        stack = read_outputs({**outputs, **logs}, file="outputs")
        assert log_store_of(stack, environment={LOKI_URL_VARIABLE: "http://here:1"}) == expected


def ranks_line(rank: int | None, second: int, message: str) -> str:
    return json.dumps({"time": f"2026-11-21T08:00:{second:02d}.000Z", "rank": rank, "message": message})


class PodLogs(KubernetesApi):
    """Worker pods with logs; None is a container that has not started."""

    def __init__(self, logs: Mapping[str, list[str] | None]) -> None:
        super().__init__(ApiClient(Configuration(host="http://nowhere")))
        self._logs = logs
        self.selectors: list[str] = []

    def items(self, api_version: str, kind: str, *, namespace: str | None = None, labels: str = "") -> list[Manifest]:
        del api_version, kind, namespace
        self.selectors.append(labels)
        return [{"metadata": {"name": name}} for name in self._logs]

    def log(self, pod: str, *, namespace: str, container: str | None = None, **options: Any) -> Iterator[str]:  # noqa: ANN401
        assert (namespace, container, options) == ("research", "ray-worker", {})
        lines = self._logs[pod]
        if lines is None:
            raise ApiError("waiting to start: ContainerCreating", code=400)
        yield from lines


def test_the_lines_of_a_rank_come_from_its_pods_by_time() -> None:
    api = PodLogs(
        {
            "a": ["Ray runtime started.", ranks_line(2, 9, "again"), ranks_line(1, 2, "one")],
            "b": [ranks_line(2, 1, "first"), "{ no json", "[1]", ranks_line(3, 2, "three"), ranks_line(2, 5, "died")],
        }
    )
    lines = rank_log(api, "research", "digits", 2)
    assert lines == [ranks_line(2, 1, "first"), ranks_line(2, 5, "died"), ranks_line(2, 9, "again")]
    assert api.selectors == ["ray-train-platform/job=digits,ray.io/node-type=worker"]


def test_a_rank_without_lines_or_pods_is_an_error_that_names_the_other_ranks_or_the_log_file() -> None:
    api = PodLogs({"a": [ranks_line(0, 1, "zero"), ranks_line(None, 1, "follower")], "b": None})
    with pytest.raises(RefusedError, match=r"none of the 2 worker pods .* rank 7\n.*have written: 0$"):
        rank_log(api, "research", "digits", 7)
    with pytest.raises(RefusedError, match=r"no worker pods.*\n.*logs/rank-3\.jsonl"):
        rank_log(PodLogs({}), "research", "digits", 3)
