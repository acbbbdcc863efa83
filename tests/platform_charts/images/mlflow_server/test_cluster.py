"""Secrets in a real cluster, with the Job's permissions."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from kubernetes.client import ApiException, CoreV1Api

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.manifest import Manifest
from infra.spec.names import PLATFORM_ACCOUNTS
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from platform_charts.images.mlflow_server.cluster import KubernetesSecrets
from platform_charts.images.mlflow_server.names import SERVER_SECRET, TEAM_SECRET
from platform_charts.objects import mlflow as objects
from tests.engines.kubernetes import Cluster

SETTINGS = load_environment("dev")
NAMESPACE, ACCOUNT = PLATFORM_ACCOUNTS["mlflow"][0]
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
HOME, TEAM = f"secrets-of-{NAMESPACE}", f"secrets-of-{SETTINGS.teams[0].name}"
"""Namespaces for these tests, with the roles of the originals."""


def _in_test_namespace(manifest: Manifest) -> Manifest:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "namespace": f"secrets-of-{metadata['namespace']}"}}


@pytest.fixture(scope="module")
def job(control_plane: ControlPlane, kubernetes_api: Cluster) -> Iterator[KubernetesSecrets]:
    """The Secrets, accessed as the Job's service account."""
    new_namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (HOME, TEAM)]
    roles = [_in_test_namespace(one) for one in objects._bootstrap_roles(SETTINGS, load_release())]
    roles = [one for one in roles if one["metadata"]["namespace"] in {HOME, TEAM}]
    with kubernetes_api.applied(*new_namespaces, *roles):
        yield KubernetesSecrets(control_plane.client(USER))


def test_an_existing_secret_keeps_its_values_and_a_missing_key_is_added(
    job: KubernetesSecrets, kubernetes_api: Cluster
) -> None:
    assert job.ensure(TEAM, TEAM_SECRET, {"password": "first"}) == {"password": "first"}
    assert job.ensure(TEAM, TEAM_SECRET, {"password": "second"}) == {"password": "first"}
    job.ensure(HOME, SERVER_SECRET, {"flask-secret-key": "a"})
    both = job.ensure(HOME, SERVER_SECRET, {"flask-secret-key": "b", "admin-password": "c"})
    assert both == {"flask-secret-key": "a", "admin-password": "c"}
    found = CoreV1Api(kubernetes_api.client).read_namespaced_secret(SERVER_SECRET, HOME)
    assert base64.b64decode(found.data["admin-password"]) == b"c"


def test_the_job_cannot_read_other_secrets_and_a_missing_namespace_is_an_error(
    job: KubernetesSecrets, control_plane: ControlPlane
) -> None:
    with pytest.raises(ApiException, match="403"):
        job.ensure(TEAM, "a-teams-own", {"password": "x"})
    with pytest.raises(ApiException, match="403"):
        CoreV1Api(control_plane.client(USER)).list_namespaced_secret(TEAM)
    with pytest.raises(ApiException, match=r"40[34]"):
        job.ensure("no-such-team", TEAM_SECRET, {"password": "x"})
