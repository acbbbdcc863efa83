"""`open` on a real API server with the objects of dev; no kubelet runs here, so the pods' ports are servers of this machine."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.errors import RefusedError
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object
from infra.spec.names import team_group
from infra.spec.release import load_release
from infra.spec.uis import VIEWER_ROLE
from platform_charts.jobs.scheduling import JOB_LABEL
from platform_charts.objects.ui_access import ui_access
from tests.engines.kubernetes_jobs import job, rayjob
from tests.engines.kubernetes_platform import Environment, in_dev
from tests.platform_charts.objects.sso_samples import open_to_teams
from tests.training.cli.command import assert_refused
from tests.training.cluster import local_kubectl
from tests.training.cluster.commands import command, options_with, read_until
from tests.training.cluster.uis.upstream import ask, log_in, upstream
from tests.waiting import wait_until
from training.cluster.context import read_target
from training.cluster.objects import POD
from training.cluster.uis.ray import ray_ui
from training.cluster.uis.shared import shared_ui
from training.cluster.uis.ui import Stack
from training.errors import ExitStatus, SettingsError

_TEAM, _OTHER = "research", "platform"
_PASSWORD = "the-password-of-the-team"
_TOKEN = "the-token-of-the-cluster"
_SECONDS = 60

pytestmark = in_dev


@dataclass(frozen=True)
class Desk:
    """A machine at which somebody opens UIs of dev."""

    environment: Environment
    folder: Path
    kubeconfig: Path

    @property
    def options(self) -> list[str]:
        """Options of a command that reaches the cluster as administrator."""
        return options_with(self.kubeconfig, self.folder)

    def stack(self, team: str | None) -> Stack:
        """The stack as a member of a team sees it; None for the administrator."""
        _, _, _, outputs, *_ = self.options
        kubeconfig, api = self.kubeconfig, KubernetesApi(self.environment.cluster.client)
        if team is not None:
            document = yaml.safe_load(kubeconfig.read_text())
            document["users"][0]["user"] |= {"as": f"{team}-member", "as-groups": [team_group(team)]}
            kubeconfig, api = self.folder / "member", self.environment.member(team)
            kubeconfig.write_text(json.dumps(document))
        target = read_target("dev", file=Path(outputs), environment={})
        return Stack(env="dev", target=target, api=api, kubeconfig=kubeconfig, environment={})


@pytest.fixture
def desk(environment: Environment, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Desk]:
    """A desk; the teams' logins exist, as MLflow's Job creates them."""
    logins = [_login(team.name) for team in environment.settings.teams]
    with environment.cluster.applied(*logins):
        yield Desk(environment, tmp_path, control_plane.kubeconfig)


def _login(team: str) -> Manifest:
    data = {"MLFLOW_TRACKING_USERNAME": team, "MLFLOW_TRACKING_PASSWORD": _PASSWORD}
    return {**api_object("v1", "Secret", "mlflow-credentials", namespace=team), "stringData": data}


def _pod(name: str, namespace: str, **labels: str) -> Manifest:
    container = {"name": "main", "image": "ui", "securityContext": RESTRICTED_CONTAINER}
    spec = {"containers": [container], "securityContext": RESTRICTED_POD, "restartPolicy": "Never"}
    return {**api_object(*POD, name, namespace=namespace, labels=labels), "spec": spec}


@pytest.fixture
def pods(desk: Desk) -> Iterator[None]:
    """Ready pods of MLflow, Prometheus, a session and a later job, both of which run."""
    cluster = desk.environment.cluster
    session = job("session-notes", team=_TEAM, kind="session", command=("true",))
    jobs = [rayjob(desk.environment, one) for one in (session, job("digits", team=_TEAM))]
    found = [
        _pod("mlflow-server", "mlflow", **{"app.kubernetes.io/name": "mlflow"}),
        _pod("prometheus-0", "monitoring", **{"app.kubernetes.io/name": "prometheus"}),
        *(
            _pod(f"{one}-abcde-head", _TEAM, **{JOB_LABEL: one, "ray.io/node-type": "head"})
            for one in ("session-notes", "digits")
        ),
    ]
    with ExitStack() as stack:
        stack.enter_context(cluster.applied(*found, *jobs))
        for one in jobs:
            cluster.update_status(one, {"jobDeploymentStatus": "Running"})
        for one in found:
            ready = [{"type": "Ready", "status": "True"}]
            cluster.update_status(one, {"phase": "Running", "conditions": ready})
        yield


@pytest.fixture
def local(desk: Desk) -> dict[str, str]:
    """Variables of a command whose kubectl forwards to servers of this machine."""
    return {**local_kubectl.variables(desk.folder, code=desk.folder), "RAY_AUTH_TOKEN": _TOKEN}


@pytest.mark.usefixtures("pods")
def test_several_uis_open_logged_in_reconnect_and_end_with_ctrl_c(desk: Desk, local: dict[str, str]) -> None:
    words = ["open", "mlflow", "ray", "prometheus", "--team", _TEAM, *desk.options]
    with upstream("mlflow") as mlflow, upstream("ray") as ray, upstream("prometheus") as prometheus:
        served = {"KUBECTL_PORT_5000": mlflow, "KUBECTL_PORT_8265": ray, "KUBECTL_PORT_9090": prometheus}
        ports = {name: str(server.port) for name, server in served.items()}
        with command(*words, environment={**local, **ports}) as process:
            said = [read_until(process, "http://localhost:") for _ in range(3)]
            urls = dict(line.strip().split(": ", 1) for line in said)
            basic = base64.b64encode(f"{_TEAM}:{_PASSWORD}".encode()).decode()
            for title, name, login in (
                (f"MLflow of team {_TEAM}", "mlflow", f"Basic {basic}"),
                ("Ray's dashboard of session-notes", "ray", f"Bearer {_TOKEN}"),
            ):
                cookie, _ = log_in(urls[title])
                seen = ask(urls[title].partition("/.open")[0], Cookie=cookie).seen
                assert (seen["server"], seen["authorization"]) == (name, login)
            assert ask(urls["Prometheus"]).seen["server"] == "prometheus"

            for forward in _forwards(desk):
                os.kill(forward, signal.SIGKILL)
            again = {read_until(process, "reconnected").strip() for _ in range(3)}
            assert again == {f"{title}: reconnected" for title in urls}
            assert ask(urls["Prometheus"]).seen["server"] == "prometheus"
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == ExitStatus.DONE, rest
    assert not {secret for secret in (_PASSWORD, basic, _TOKEN) if secret in "".join(said) + rest}
    assert not any(map(psutil.pid_exists, _forwards(desk)))


@pytest.mark.usefixtures("pods")
def test_the_end_of_the_job_ends_its_dashboard(desk: Desk, local: dict[str, str]) -> None:
    words = ["open", "ray", "--job", "notes", *desk.options]
    with upstream("ray") as ray, command(*words, environment={**local, "KUBECTL_PORT_8265": str(ray.port)}) as process:
        read_until(process, "http://localhost:")
        ended = api_object("ray.io/v1", "RayJob", "session-notes", namespace=_TEAM)
        desk.environment.cluster.update_status(ended, {"jobDeploymentStatus": "Complete"})
        os.kill(_forwards(desk)[0], signal.SIGKILL)
        read_until(process, "Ray's dashboard of session-notes has ended")
        assert process.wait(_SECONDS) == ExitStatus.DONE


def _forwards(desk: Desk) -> list[int]:
    """Process IDs of the forwards that were started."""
    return [int(one.name) for one in (desk.folder / "forwards").iterdir()]


@pytest.mark.usefixtures("pods")
def test_what_does_not_run_and_a_port_in_use_are_refused(
    desk: Desk, local: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", local["PATH"])
    no_pod = "Grafana of dev does not run: namespace monitoring has no pod of it\n  remedy: bring the stack up: make up ENV=dev"
    assert_refused(ExitStatus.REFUSED, no_pod, "open", "grafana", *desk.options)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        in_use = f"port {port} of this machine is in use"
        assert_refused(ExitStatus.REFUSED, in_use, "open", "prometheus", "--port", str(port), *desk.options)
    meant = "did you mean session-notes?"
    assert_refused(ExitStatus.WRONG_INPUT, meant, "open", "ray", "--job", "session-note", *desk.options)


def test_a_member_opens_mlflow_for_the_own_team_only_and_needs_a_session_for_ray(desk: Desk) -> None:
    stack = desk.stack(_TEAM)
    with pytest.raises(RefusedError, match="start a session: make cluster ENV=dev"):
        ray_ui(stack, team=None, job=None)
    found = shared_ui("mlflow", stack, team=None)
    assert (found.title, found.start) == (f"MLflow of team {_TEAM}", f"/#/?workspace={_TEAM}")
    assert found.find_authorization is not None
    basic = base64.b64encode(f"{_TEAM}:{_PASSWORD}".encode()).decode()
    assert found.find_authorization() == f"Basic {basic}"
    with pytest.raises(RefusedError) as refusal:
        shared_ui("mlflow", stack, team=_OTHER)
    assert f"get secrets mlflow-credentials in namespace {_OTHER}, which the role mlflow-login" in str(refusal.value)
    assert f"add yours to `roles` of team {_OTHER}" in str(refusal.value)
    with pytest.raises(SettingsError, match=r"MLflow for 2 teams: .*\n.*choose one with TEAM=…"):
        shared_ui("mlflow", desk.stack(None), team=None)
    role = r"the role mlflow-login of the team's namespace grants; you have it for none"
    with pytest.raises(RefusedError, match=role):
        shared_ui("mlflow", desk.stack("nobody"), team=None)


def test_monitoring_needs_the_role_that_the_message_names(desk: Desk) -> None:
    stack, api, names = desk.stack(_TEAM), "rbac.authorization.k8s.io", ("grafana", "prometheus", "alertmanager")
    # The API server learns of a binding that is made or deleted a moment later.
    wait_until(lambda: all(_refusal(name, stack) for name in names), seconds=_SECONDS)
    for name in names:
        refusal = _refusal(name, stack)
        assert "in namespace monitoring, which the role monitoring-ui of that namespace grants" in refusal
        assert "kubectl --namespace monitoring create rolebinding monitoring-ui --role monitoring-ui" in refusal
    bound = {
        **api_object(f"{api}/v1", "RoleBinding", "monitoring-ui", namespace="monitoring"),
        "roleRef": {"apiGroup": api, "kind": "Role", "name": "monitoring-ui"},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": team_group(_TEAM)}],
    }
    with desk.environment.cluster.applied(bound):
        wait_until(lambda: not any(_refusal(name, stack) for name in names), seconds=_SECONDS)
        login = shared_ui("grafana", stack, team=None).find_authorization
        assert login is not None
        with pytest.raises(RefusedError, match="the Secret monitoring/kube-prometheus-stack-grafana"):
            login()


def _refusal(name: str, stack: Stack) -> str:
    """Why a UI is refused; empty if it is not."""
    try:
        shared_ui(name, stack, team=None)
    except RefusedError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("pods")
def test_a_member_opens_the_dashboard_of_a_session_and_the_policy_refuses_that_of_a_job(desk: Desk) -> None:
    stack = desk.stack(_TEAM)
    assert ray_ui(stack, team=None, job=None).title == "Ray's dashboard of session-notes", "although the job is later"
    refused = ray_ui(stack, team=None, job="digits")
    assert refused.find_pod() == "digits-abcde-head"
    assert refused.find_authorization is not None
    with pytest.raises(RefusedError) as refusal:
        refused.find_authorization()
    assert "whose names begin with session-" in str(refusal.value)
    assert "administrators of the cluster those of any job" in str(refusal.value)
    with pytest.raises(RefusedError, match="no job or session of team platform runs"):
        ray_ui(desk.stack(_OTHER), team=None, job=None)


def test_a_member_opens_grafana_as_viewer_where_it_is_open_to_teams(desk: Desk) -> None:
    roles = [one for one in ui_access(open_to_teams(), load_release()) if one["metadata"]["name"] == VIEWER_ROLE]
    with desk.environment.cluster.applied(*roles):
        found = shared_ui("grafana", desk.stack(_TEAM), team=None)
    assert found.title == "Grafana as viewer"
    assert found.find_authorization is not None, "the local port is for one browser only"
    assert found.find_authorization() is None
    administrator = shared_ui("grafana", desk.stack(None), team=None)
    assert administrator.title == "Grafana"
