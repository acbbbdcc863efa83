"""A rank's log out of the pods' logs.

The pods are kwok's or nobody's in these tests, and have no logs: the answers the API server would give are played.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest
from kubernetes.client import ApiClient, Configuration

from infra.spec.manifest import Manifest
from training.cluster.api import Api
from training.cluster.errors import ApiError, ClusterRefusedError
from training.cluster.rank_log import rank_log


def record(rank: int | None, second: int, message: str) -> str:
    """A line as `training.logs` writes it."""
    return json.dumps({"time": f"2026-11-21T08:00:{second:02d}.000Z", "rank": rank, "message": message})


class PodLogs(Api):
    """Worker pods with logs; None is a container that has not begun."""

    def __init__(self, logs: Mapping[str, list[str] | None]) -> None:
        super().__init__(ApiClient(Configuration(host="http://nowhere")))
        self._logs = logs
        self.asked: list[str] = []

    def items(self, path: str, *, labels: str = "", fields: str = "") -> list[Manifest]:
        """The pods."""
        del path, fields
        self.asked.append(labels)
        return [{"metadata": {"name": name}} for name in self._logs]

    def lines(self, path: str, query: Mapping[str, str]) -> Iterator[str]:
        """A pod's log."""
        assert query == {"container": "ray-worker"}
        lines = self._logs[path.split("/")[-2]]
        if lines is None:
            raise ApiError("waiting to start: ContainerCreating", code=400)
        yield from lines


def test_the_lines_of_a_rank_come_from_the_pod_it_is_in() -> None:
    api = PodLogs(
        {
            "a": ["Ray runtime started.", record(0, 1, "zero"), record(1, 2, "one")],
            "b": [record(2, 1, "two"), "{ no json", "[1]", record(3, 2, "three")],
        }
    )
    assert rank_log(api, "research", "digits", 2) == [record(2, 1, "two")]
    assert api.asked == ["ray-train-platform/job=digits,ray.io/node-type=worker"]


def test_a_rank_that_moved_with_a_restart_is_told_in_the_order_of_time() -> None:
    api = PodLogs({"new": [record(1, 9, "again")], "old": [record(1, 1, "first"), record(1, 5, "died")]})
    assert [json.loads(line)["message"] for line in rank_log(api, "research", "digits", 1)] == [
        "first",
        "died",
        "again",
    ]


def test_a_rank_that_is_not_there_is_answered_with_those_that_are() -> None:
    api = PodLogs({"a": [record(0, 1, "zero"), record(None, 1, "follower")], "b": None})
    with pytest.raises(ClusterRefusedError, match=r"none of the 2 worker pods .* rank 7\n.*have written: 0$"):
        rank_log(api, "research", "digits", 7)


def test_a_job_whose_pods_are_gone_says_where_the_log_stays() -> None:
    with pytest.raises(ClusterRefusedError, match=r"no worker pods.*\n.*logs/rank-3\.jsonl"):
        rank_log(PodLogs({}), "research", "digits", 3)
