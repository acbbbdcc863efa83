"""A deleted environment leaves no objects. Last by name, so that no environment is deployed twice."""

from __future__ import annotations

from tests.engines.kubernetes_platform import Deployments, Environment


def test_a_deleted_environment_leaves_no_objects(environment: Environment, deployments: Deployments) -> None:
    assert environment.manifests
    assert deployments.down() == set()
