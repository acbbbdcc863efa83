"""A deleted environment leaves no objects. It is deployed again for the tests of other folders, which come later."""

from __future__ import annotations

from tests.engines.kubernetes_platform import Deployments, Environment


def test_a_deleted_environment_leaves_no_objects(environment: Environment, deployments: Deployments) -> None:
    assert environment.manifests
    assert deployments.down() == set()
    deployments.up_again()
