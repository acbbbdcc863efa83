"""What is left of an environment on a real API server: nothing. Last by name, so that no environment comes up twice."""

from __future__ import annotations

from tests.engines.kubernetes_platform import Deployments, Environment


def test_an_environment_that_is_deleted_leaves_nothing(environment: Environment, deployments: Deployments) -> None:
    assert environment.manifests
    assert deployments.down() == set()
