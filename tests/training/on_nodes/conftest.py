"""One sandbox for all jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distribution import REAL_NODES
from tests.engines.report_table import skipped
from tests.training.on_nodes.cluster import NAME, SETTINGS, Job, NodeCluster, running_cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests share a process, and the sandbox in it."""
    for item in items:
        if item.path.parent.name == "on_nodes":
            item.add_marker(pytest.mark.xdist_group(REAL_NODES))
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def nodes(request: pytest.FixtureRequest) -> Iterator[NodeCluster]:
    """A sandbox whose nodes run jobs."""
    if not request.config.getoption("on_nodes"):
        skipped(NAME, "they take half an hour", "make test-cluster")
    running = request.config.getoption("sandbox")
    with running_cluster(None if running is None else Path(running).resolve()) as found:
        yield found


@pytest.fixture(scope="session")
def undisturbed(nodes: NodeCluster) -> Iterator[Job]:
    """A job of two worker pods that nothing disturbs, at its end."""
    with nodes.job("undisturbed", "--num-workers", "2", *SETTINGS) as job:
        assert job.end() == 0, job.said
        yield job
        nodes.delete(job)
