"""The stage of the tests that need a cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from infra.lifecycle.sandbox.control_plane import ControlPlane
from tests.engines.kubernetes import Cluster
from tests.training.cluster.stage import Stage, stage
from training.cluster.api import Api


@pytest.fixture(scope="session")
def on_stage(
    control_plane: ControlPlane, custom_resources: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """A team's namespace on a real API server; one for the session, because a namespace takes seconds to go."""
    with stage(custom_resources, control_plane.kubeconfig, tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.fixture
def name() -> str:
    """The name of a job that no other test has."""
    return f"digits-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    """The API server as the commands see it."""
    return Api(control_plane.client())
