"""A deleted environment leaves no objects. It is deployed again for the tests of other folders, which come later."""

from __future__ import annotations

import pytest

from tests.engines.kubernetes_platform import Deployments, Environment

pytestmark = pytest.mark.extended


def test_a_deleted_environment_leaves_no_objects(environment: Environment, deployments: Deployments) -> None:
    assert environment.manifests
    assert deployments.down() == set()
    deployments.up_again()
