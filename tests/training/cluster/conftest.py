"""A team's namespace on a real API server, for the tests that need one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.lifecycle.sandbox.control_plane import ControlPlane
from tests.engines.kubernetes import Cluster
from tests.training.cluster.team_cluster import TeamCluster, team_cluster_on


@pytest.fixture(scope="session")
def team_cluster(
    control_plane: ControlPlane, custom_resources: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TeamCluster]:
    """One per session, because deleting a namespace takes seconds."""
    with team_cluster_on(custom_resources, control_plane.kubeconfig, tmp_path_factory.mktemp("team")) as found:
        yield found


@pytest.fixture
def name() -> str:
    """A job's name that no other test uses."""
    return f"digits-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    return folder
