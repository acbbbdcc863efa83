"""Settings from environment variables, and the manifests that set them."""

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
from platform_charts.objects.mlflow_pods import Stores

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
STORES = Stores(database_host="db", database_port=5432, database_secret_arn="arn:x", artifact_bucket="bucket")


def container_of(kind: str) -> dict[str, Any]:
    """The container of the Job or the Deployment."""
    made = objects.mlflow(load_environment("dev"), load_release(), STORES, registry="registry.example")
    [workload] = [one for one in made if one["kind"] == kind]
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def variables(container: dict[str, Any]) -> dict[str, str]:
    """A container's environment; a value from a Secret is the Secret's name and key."""
    return {
        one["name"]: one.get("value") or "/".join(one["valueFrom"]["secretKeyRef"].values()) for one in container["env"]
    }


def test_the_job_sets_every_variable_that_migrate_reads() -> None:
    environment = variables(container_of("Job"))
    assert DatabaseSettings.from_environment(environment).secret == "arn:x"
    settings = BootstrapSettings.from_environment(environment)
    assert settings.teams == tuple(team.name for team in load_environment("dev").teams)
    assert settings.namespace == cluster_names.MLFLOW_NAMESPACE


def test_the_deployment_sets_every_variable_that_serve_reads() -> None:
    environment = variables(container_of("Deployment"))
    assert DatabaseSettings.from_environment(environment).host == "db"
    settings = ServerSettings.from_environment(environment)
    assert settings.bucket == "bucket"
    assert settings.session_key == f"{names.SERVER_SECRET}/flask-secret-key"
    assert settings.port == objects.PORT
    assert MLFLOW_URI.removeprefix("http://").partition(":")[0] in settings.allowed_hosts


def test_the_image_and_the_platform_use_the_same_secret_names() -> None:
    assert cluster_names.MLFLOW_CREDENTIALS == names.TEAM_SECRET
    assert cluster_names.MLFLOW_SERVER_SECRET == names.SERVER_SECRET


def test_lists_may_contain_spaces() -> None:
    assert ServerSettings.from_environment(SERVER).allowed_hosts == ("mlflow", "mlflow.mlflow")


def test_teams_are_optional() -> None:
    assert BootstrapSettings.from_environment({"POD_NAMESPACE": "mlflow", "TEAMS": ""}).teams == ()


@pytest.mark.parametrize("name", DATABASE)
def test_a_missing_database_variable_is_named(name: str) -> None:
    with pytest.raises(EnvironmentVariableError, match=name):
        DatabaseSettings.from_environment({**DATABASE, name: " "})


@pytest.mark.parametrize("name", SERVER)
def test_a_missing_server_variable_is_named(name: str) -> None:
    with pytest.raises(EnvironmentVariableError, match=name):
        ServerSettings.from_environment({key: value for key, value in SERVER.items() if key != name})


@pytest.mark.parametrize("value", ["0", "two", "-1", "1.5"])
def test_an_invalid_number_is_an_error(value: str) -> None:
    with pytest.raises(EnvironmentVariableError, match=f"MLFLOW_WORKERS is '{value}'; .* above 0"):
        ServerSettings.from_environment({**SERVER, "MLFLOW_WORKERS": value})


def test_an_invalid_environment_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert main(["migrate"]) == 2
    assert "POD_NAMESPACE is not set" in capsys.readouterr().err


def test_serve_imports_neither_the_kubernetes_client_nor_mlflow() -> None:
    program = "import sys, platform_charts.images.mlflow_server.serve; print({'kubernetes', 'mlflow'} & {*sys.modules})"
    answer = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert answer.stdout == "set()\n"
