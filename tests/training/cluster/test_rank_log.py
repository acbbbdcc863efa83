"""A rank's log, from the pods' logs.

No pod of these tests has a log: a fake API answers in place of the API server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration

from infra.kube.api import KubernetesApi
from infra.kube.errors import ApiError
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from training.cluster.rank_log import rank_log


def record(rank: int | None, second: int, message: str) -> str:
    """A line as `training.logs` writes it."""
    return json.dumps({"time": f"2026-11-21T08:00:{second:02d}.000Z", "rank": rank, "message": message})


class PodLogs(KubernetesApi):
    """Worker pods with logs; None is a container that has not started."""

    def __init__(self, logs: Mapping[str, list[str] | None]) -> None:
        super().__init__(ApiClient(Configuration(host="http://nowhere")))
        self._logs = logs
        self.selectors: list[str] = []

    def items(self, api_version: str, kind: str, *, namespace: str | None = None, labels: str = "") -> list[Manifest]:
        """The pods."""
        del api_version, kind, namespace
        self.selectors.append(labels)
        return [{"metadata": {"name": name}} for name in self._logs]

    def log(self, pod: str, *, namespace: str, container: str | None = None, **options: Any) -> Iterator[str]:  # noqa: ANN401
        """A pod's log."""
        assert (namespace, container, options) == ("research", "ray-worker", {})
        lines = self._logs[pod]
        if lines is None:
            raise ApiError("waiting to start: ContainerCreating", code=400)
        yield from lines


def test_the_lines_of_a_rank_come_from_its_pods_by_time() -> None:
    api = PodLogs(
        {
            "a": ["Ray runtime started.", record(2, 9, "again"), record(1, 2, "one")],
            "b": [record(2, 1, "first"), "{ no json", "[1]", record(3, 2, "three"), record(2, 5, "died")],
        }
    )
    lines = rank_log(api, "research", "digits", 2)
    assert lines == [record(2, 1, "first"), record(2, 5, "died"), record(2, 9, "again")]
    assert api.selectors == ["ray-train-platform/job=digits,ray.io/node-type=worker"]


def test_a_rank_without_lines_or_pods_is_an_error_that_names_the_other_ranks_or_the_log_file() -> None:
    api = PodLogs({"a": [record(0, 1, "zero"), record(None, 1, "follower")], "b": None})
    with pytest.raises(RefusedError, match=r"none of the 2 worker pods .* rank 7\n.*have written: 0$"):
        rank_log(api, "research", "digits", 7)
    with pytest.raises(RefusedError, match=r"no worker pods.*\n.*logs/rank-3\.jsonl"):
        rank_log(PodLogs({}), "research", "digits", 3)
