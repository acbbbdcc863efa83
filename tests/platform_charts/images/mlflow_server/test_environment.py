"""What the program is told, and that the rest of the repository tells it so."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from infra.spec import cluster_names
from infra.spec.names import MLFLOW_URI
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from platform_charts.images.mlflow_server import names
from platform_charts.images.mlflow_server.__main__ import main
from platform_charts.images.mlflow_server.environment import (
    BootstrapSettings,
    DatabaseSettings,
    EnvironmentVariableError,
    ServerSettings,
)
from platform_charts.objects import mlflow as objects

DATABASE = {
    "MLFLOW_DB_HOST": "db",
    "MLFLOW_DB_PORT": "5432",
    "MLFLOW_DB_SECRET_ARN": "arn:x",
    "AWS_REGION": "us-east-1",
}
SERVER = {
    "MLFLOW_ARTIFACT_BUCKET": "bucket",
    "MLFLOW_ALLOWED_HOSTS": "mlflow, mlflow.mlflow",
    "MLFLOW_WORKERS": "2",
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "key",
}
STORES = objects.Stores(database_host="db", database_port=5432, database_secret_arn="arn:x", artifact_bucket="bucket")


def container_of(kind: str) -> dict[str, Any]:
    """The container of the Job or the Deployment, as the platform makes it."""
    made = objects.mlflow(load_environment("dev"), load_release(), STORES, registry="registry.example")
    [workload] = [one for one in made if one["kind"] == kind]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def variables(container: dict[str, Any]) -> dict[str, str]:
    """A container's environment; a value out of a Secret is the Secret's name and key."""
    return {
        one["name"]: one.get("value") or "/".join(one["valueFrom"]["secretKeyRef"].values()) for one in container["env"]
    }


def test_the_job_is_told_what_migrate_reads() -> None:
    environment = variables(container_of("Job"))
    assert DatabaseSettings.from_environment(environment).secret == "arn:x"
    settings = BootstrapSettings.from_environment(environment)
    assert settings.teams == tuple(team.name for team in load_environment("dev").teams)
    assert settings.namespace == cluster_names.MLFLOW_NAMESPACE


def test_the_deployment_is_told_what_serve_reads() -> None:
    environment = variables(container_of("Deployment"))
    assert DatabaseSettings.from_environment(environment).host == "db"
    settings = ServerSettings.from_environment(environment)
    assert settings.bucket == "bucket"
    assert settings.session_key == f"{names.SERVER_SECRET}/flask-secret-key"
    assert settings.port == objects.PORT
    assert MLFLOW_URI.removeprefix("http://").partition(":")[0] in settings.allowed_hosts


def test_program_and_platform_call_the_secrets_the_same() -> None:
    assert cluster_names.MLFLOW_CREDENTIALS == names.TEAM_SECRET
    assert cluster_names.MLFLOW_SERVER_SECRET == names.SERVER_SECRET


def test_names_may_stand_apart() -> None:
    assert ServerSettings.from_environment(SERVER).allowed_hosts == ("mlflow", "mlflow.mlflow")


def test_without_teams_there_is_the_administrator_only() -> None:
    assert BootstrapSettings.from_environment({"POD_NAMESPACE": "mlflow", "TEAMS": ""}).teams == ()


@pytest.mark.parametrize("name", DATABASE)
def test_an_absent_variable_of_the_database_is_named(name: str) -> None:
    with pytest.raises(EnvironmentVariableError, match=name):
        DatabaseSettings.from_environment({**DATABASE, name: " "})


@pytest.mark.parametrize("name", SERVER)
def test_an_absent_variable_of_the_server_is_named(name: str) -> None:
    with pytest.raises(EnvironmentVariableError, match=name):
        ServerSettings.from_environment({key: value for key, value in SERVER.items() if key != name})


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_a_number_that_is_none_is_named_with_its_rule(value: str) -> None:
    with pytest.raises(EnvironmentVariableError, match=f"MLFLOW_WORKERS is '{value}'; .* above 0"):
        ServerSettings.from_environment({**SERVER, "MLFLOW_WORKERS": value})


def test_a_wrong_environment_ends_the_program_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert main(["migrate"]) == 2
    assert "POD_NAMESPACE is not set" in capsys.readouterr().err


def test_the_server_starts_without_kubernetes_client_or_mlflow() -> None:
    program = "import sys, platform_charts.images.mlflow_server.serve; print({'kubernetes', 'mlflow'} & {*sys.modules})"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout == "set()\n"
