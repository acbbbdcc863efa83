"""Single sign-on, and Grafana for viewers, on a real API server with the objects of dev."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import suppress

import pytest

from infra.kube.errors import ApiError
from infra.lifecycle.preflight.single_sign_on import single_sign_on_notes
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.manifest import Manifest, api_object
from infra.spec.names import MLFLOW_URI, team_group
from infra.spec.release import load_release
from infra.spec.settings import StackSettings
from infra.spec.uis import GRAFANA, MLFLOW_LOGIN
from platform_charts.images.sso_proxy.logins import LoginError, SecretLogins
from platform_charts.images.sso_proxy.proxy import HEALTH_PATH
from platform_charts.objects.phases import platform_objects
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_platform import Environment, drifts, in_dev
from tests.engines.ports import free_port
from tests.platform_charts.images.sso_proxy.load_balancer import LoadBalancer, served_keys
from tests.platform_charts.objects.sso_samples import open_to_teams, with_single_sign_on
from tests.platform_charts.test_cluster_security import connect
from tests.training.cluster.uis.upstream import ask, upstream
from tests.waiting import wait_until

_SECONDS = 120.0
_RBAC = "rbac.authorization.k8s.io"

pytestmark = in_dev


def added(environment: Environment, settings: StackSettings) -> list[Manifest]:
    """The objects that settings add to those of the environment."""
    phases = platform_objects(settings, load_release(), environment.stack.facts)
    known = [_identity(one) for one in environment.manifests]
    return [one for phase in phases.values() for one in phase if _identity(one) not in known]


def _identity(manifest: Manifest) -> tuple[str, str, str | None]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata["name"], metadata.get("namespace")


@pytest.fixture
def objects(environment: Environment) -> Iterator[list[Manifest]]:
    """The objects of single sign-on for the first team only."""
    found = added(environment, with_single_sign_on(groups={environment.team: ["ml"]}))
    with environment.cluster.applied(*found):
        yield found


def test_the_objects_are_accepted_without_warnings_or_drift(environment: Environment, objects: list[Manifest]) -> None:
    kinds = {one["kind"] for one in objects if one["metadata"].get("namespace") == "sso"}
    assert {"Deployment", "Service", "Ingress", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    assert [_identity(one) for one in objects if drifts(environment.cluster, one)] == []
    assert environment.cluster.warnings == []


@pytest.mark.usefixtures("objects")
def test_the_proxy_reads_the_login_of_its_teams_and_no_other_secret(environment: Environment) -> None:
    own, other = (team.name for team in environment.settings.teams[:2])
    secrets = [_login(team) for team in (own, other)]
    proxy = environment.cluster.seen_by("system:serviceaccount:sso:sso-proxy", "system:serviceaccounts:sso")
    with environment.cluster.applied(*secrets):
        found = asyncio.run(_logins(proxy).basic(own))
        assert base64.b64decode(found.removeprefix("Basic ")).decode() == f"{own}:the password"
        with pytest.raises(LoginError, match=f"cannot read the Secret {other}/{MLFLOW_LOGIN.secret}: 403 Forbidden"):
            asyncio.run(_logins(proxy).basic(other))
        login = f"the Secret {own}/{MLFLOW_LOGIN.secret} lacks {MLFLOW_LOGIN.password}"
        environment.cluster.patch(secrets[0], {"data": {MLFLOW_LOGIN.password: None}})
        with pytest.raises(LoginError, match=login):
            asyncio.run(_logins(proxy).basic(own))
    with pytest.raises(LoginError, match=f"cannot read the Secret {own}/{MLFLOW_LOGIN.secret}: 404 Not Found"):
        asyncio.run(_logins(proxy).basic(own))


def test_the_program_of_the_deployment_serves_members_and_ends_with_sigterm(
    environment: Environment, objects: list[Manifest], control_plane: ControlPlane
) -> None:
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    arguments, balancer, port = container["args"], LoadBalancer(), free_port()
    (signer,) = [one.removeprefix("--signer=") for one in arguments if one.startswith("--signer=")]
    token = balancer.token(["ml"], signer=f"{signer}50dc6c495c0c9188")
    program = [sys.executable, "-m", "platform_charts.images.sso_proxy"]
    with upstream("mlflow") as mlflow, served_keys(balancer) as keys:
        here = [one.replace(MLFLOW_URI, f"http://127.0.0.1:{mlflow.port}") for one in arguments]
        local = [*program, *here, f"--keys={keys}", f"--port={port}"]
        environ = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig)}
        with (
            environment.cluster.applied(_login(environment.team)),
            subprocess.Popen(local, env=environ, stdout=subprocess.PIPE, text=True) as process,
        ):
            try:
                _await_health(process, port)
                host = f"mlflow-{environment.team}.ml.example.com"
                seen = ask(f"http://127.0.0.1:{port}/", Host=host, X_Amzn_Oidc_Data=token).seen
            finally:
                process.terminate()
            said, _ = process.communicate(timeout=_SECONDS)
    assert base64.b64decode(seen["authorization"].removeprefix("Basic ")).decode() == f"{environment.team}:the password"
    assert said.startswith("serving grafana.ml.example.com, mlflow-")
    assert (process.returncode, "the password" in said) == (0, False)


def _await_health(process: subprocess.Popen[str], port: int) -> None:
    def is_healthy() -> bool:
        assert process.poll() is None, "the program has ended"
        with suppress(urllib.error.URLError):
            return ask(f"http://127.0.0.1:{port}{HEALTH_PATH}").body == "ok\n"
        return False

    wait_until(is_healthy, seconds=_SECONDS)


def _login(team: str) -> Manifest:
    data = {MLFLOW_LOGIN.user: team, MLFLOW_LOGIN.password: "the password"}
    return {**api_object("v1", "Secret", MLFLOW_LOGIN.secret, namespace=team), "stringData": data}


def _logins(cluster: Cluster) -> SecretLogins:
    login = MLFLOW_LOGIN
    return SecretLogins(cluster.client, secret=login.secret, user=login.user, password=login.password)


@pytest.mark.usefixtures("objects")
def test_the_preflight_says_what_the_cluster_lacks(environment: Environment) -> None:
    settings, cluster = with_single_sign_on(), environment.cluster
    controller = {
        **api_object("networking.k8s.io/v1", "IngressClass", "alb"),
        "spec": {"controller": "ingress.k8s.aws/alb"},
    }
    secret = api_object("v1", "Secret", "oidc-client", namespace="sso")
    assert [*single_sign_on_notes(environment.settings, cluster)] == []
    assert len([*single_sign_on_notes(settings, None)]) == 2
    with cluster.applied(controller, {**secret, "stringData": {"clientID": "ray-train-platform"}}):
        (note,) = single_sign_on_notes(settings, cluster)
        assert "until the Secret sso/oidc-client has clientSecret: create it" in note
        cluster.apply({**secret, "stringData": {"clientID": "ray-train-platform", "clientSecret": "secret"}})
        assert [*single_sign_on_notes(settings, cluster)] == []


def test_viewers_forward_grafanas_port_only_and_the_role_for_all_of_monitoring_any(environment: Environment) -> None:
    """The API server admits a connection before it looks for the pod, which is not there."""
    member, pods = environment.member(environment.team), (f"{GRAFANA}-5d8f-abcde", "prometheus-0", "alertmanager-0")
    with environment.cluster.applied(*added(environment, open_to_teams())):
        _await_answer(member, pods[0], code=404)
        for pod in pods[1:]:
            refused = _await_answer(member, pod, code=403)
            assert "with the role grafana-viewer, port forwards are for Grafana only" in str(refused)
        assert connect(member, "monitoring", pods[0], "exec").code == 403
        with environment.cluster.applied(_bound(environment.team)):
            for pod in pods:
                _await_answer(member, pod, code=404)


def _await_answer(member: Cluster, pod: str, *, code: int) -> ApiError:
    """The answer to a port forward; the API server enforces new roles and policies after a moment."""
    wait_until(lambda: connect(member, "monitoring", pod, "portforward").code == code, seconds=_SECONDS)
    return connect(member, "monitoring", pod, "portforward")


def _bound(team: str) -> Manifest:
    """The role for all of monitoring, for a team."""
    return {
        **api_object(f"{_RBAC}/v1", "RoleBinding", "monitoring-ui", namespace="monitoring"),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "monitoring-ui"},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": team_group(team)}],
    }
