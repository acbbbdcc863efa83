"""The server with authentication: permissions of teams, and credential rotation."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
import urllib3
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from platform_charts.images.mlflow_server.migrate import migrate
from platform_charts.images.mlflow_server.names import ADMINISTRATOR
from tests.engines.mlflow_server import MlflowServer
from tests.engines.ports import free_port
from tests.platform_charts.images.mlflow_server.platform import SERVICE, Platform
from tests.training.cluster.uis.upstream import ask, log_in
from tests.training.tracking.recorded import RecordedRun, history, settings
from training.cluster.uis.gate import Gate
from training.cluster.uis.proxy import LocalProxy, Upstream
from training.tracking.delivery import Delivery, last_start
from training.tracking.state import TrackingState

VISION, SPEECH = "vision", "speech"


def log_in_as(team: str, services: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment variables of a team's jobs, with which MLflow's client logs in."""
    for name, value in services.credentials(team).items():
        monkeypatch.setenv(name, value)


def deliver(uri: str, folder: Path) -> tuple[RecordedRun, TrackingState]:
    """Record a complete run and deliver it like the trainer's follower."""
    run = RecordedRun(settings(folder, uri))
    run.start()
    run.train(1, 20)
    run.end()
    started = last_start(run.directory)
    assert started is not None
    delivery = Delivery(run.directory, started)
    delivery.deliver(is_finished=True)
    return run, delivery.state


def status(server: MlflowServer, user: str, password: str, *, host: str = SERVICE, workspace: str = VISION) -> int:
    """HTTP status of a search for experiments."""
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {token}", "Host": host, "X-MLFLOW-WORKSPACE": workspace}
    url = f"{server.uri}/api/2.0/mlflow/experiments/search?max_results=1"
    return urllib3.request("GET", url, headers=headers, retries=False).status


def password_of(team: str, services: Platform) -> str:
    """A team's password."""
    return services.credentials(team)["MLFLOW_TRACKING_PASSWORD"]


@pytest.mark.extended
def test_a_run_is_delivered_with_its_teams_credentials(
    server: MlflowServer, services: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log_in_as(VISION, services, monkeypatch)
    run, state = deliver(server.uri, tmp_path)
    assert history(server.uri, state.run_id) == run.expected()
    stored = [name for name in services.object_names() if f"/{state.run_id}/" in name]
    assert any(name.endswith("report.html") for name in stored)
    assert all(name.startswith(f"mlflow/workspaces/{VISION}/") for name in stored)


def test_a_team_sees_and_changes_only_its_own_workspace(
    server: MlflowServer, services: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in_as(SPEECH, services, monkeypatch)
    MlflowClient(server.uri).create_experiment("kept")
    log_in_as(VISION, services, monkeypatch)
    experiment = MlflowClient(server.uri).create_experiment("kept")
    MlflowClient(server.uri).create_experiment("unseen")
    assert [found.name for found in MlflowClient(server.uri).list_workspaces()] == [VISION]
    log_in_as(SPEECH, services, monkeypatch)
    assert "unseen" not in {found.name for found in MlflowClient(server.uri).search_experiments()}
    for workspace in (SPEECH, VISION):
        monkeypatch.setenv("MLFLOW_WORKSPACE", workspace)
        for act in (MlflowClient(server.uri).get_experiment, MlflowClient(server.uri).delete_experiment):
            with pytest.raises(MlflowException):
                act(experiment)
    assert MlflowClient(server.uri).search_experiments() == []
    log_in_as(VISION, services, monkeypatch)
    assert MlflowClient(server.uri).get_experiment(experiment).lifecycle_stage == "active"


def test_the_passwords_of_the_secrets_log_in_at_an_allowed_host_and_no_other(
    server: MlflowServer, services: Platform
) -> None:
    own, admin = password_of(VISION, services), services.server_secret["admin-password"]
    assert status(server, VISION, password_of(SPEECH, services)) == 401
    assert status(server, ADMINISTRATOR, admin) == 200
    for default in ("password1234", "password"):
        assert status(server, "admin", default) == 401, "MLflow's default administrator"
    hosts = {SERVICE: 200, f"{SERVICE}:5000": 200, "evil.example": 403, f"{SERVICE}.evil.example": 403}
    assert {host: status(server, VISION, own, host=host) for host in hosts} == hosts
    health = urllib3.request("GET", f"{server.uri}/health", headers={"Host": "10.0.3.7:5000"}, retries=False)
    assert health.status == 200, "it needs neither"


def test_a_browser_at_the_local_port_of_open_is_the_team(server: MlflowServer, services: Platform) -> None:
    login = base64.b64encode(f"{VISION}:{password_of(VISION, services)}".encode()).decode()
    gate = Gate(port=free_port(), start="/", key="key")
    origin = f"http://localhost:{gate.port}"
    with LocalProxy(gate, title="MLflow") as proxy:
        proxy.upstream = Upstream(int(server.uri.rpartition(":")[2]), f"Basic {login}")
        cookie, _ = log_in(gate.url)
        assert "<title>MLflow</title>" in ask(f"{origin}/", Cookie=cookie).body
        workspaces = ask(f"{origin}/ajax-api/3.0/mlflow/workspaces", Cookie=cookie)
        assert [one["name"] for one in json.loads(workspaces.body)["workspaces"]] == [VISION]
        # What the page sends when somebody creates an experiment; MLflow checks Host and Origin.
        made = json.dumps({"name": "made-in-a-browser"}).encode()
        page = {"Cookie": cookie, "Origin": origin, "Content_Type": "application/json", "X_MLFLOW_WORKSPACE": VISION}
        assert ask(f"{origin}/ajax-api/2.0/mlflow/experiments/create", data=made, **page).status == 200


def test_no_process_has_a_password_in_its_command_line_or_environment(server: MlflowServer, services: Platform) -> None:
    processes = server.processes()
    assert any("uvicorn" in text for text in processes)
    assert not [text for text in processes if "first:" in text or services.server_secret["admin-password"] in text]


def test_a_rotated_database_password_takes_effect_without_a_restart(server: MlflowServer, services: Platform) -> None:
    before = server.processes()
    services.rotate("second")
    services.cut_connections()
    deadline = time.monotonic() + 60
    while status(server, ADMINISTRATOR, services.server_secret["admin-password"], workspace=SPEECH) != 200:
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.5)
    assert server.processes() == before


@pytest.mark.extended
def test_migrating_again_changes_nothing_but_the_password_of_an_account_whose_secret_has_another(
    server: MlflowServer, services: Platform
) -> None:
    services.credentials(SPEECH)["MLFLOW_TRACKING_PASSWORD"] = "new-password"
    secrets = {key: dict(value) for key, value in services.secrets.found.items()}
    migrate(services.bootstrap_settings, services.database, services.secrets)
    assert services.secrets.found == secrets
    assert status(server, VISION, password_of(VISION, services)) == 200
    assert status(server, SPEECH, "new-password", workspace=SPEECH) == 200
