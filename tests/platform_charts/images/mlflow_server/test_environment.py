"""Settings from environment variables; `objects/test_mlflow.py` reads those of the manifests."""

from __future__ import annotations

import subprocess
import sys

import pytest

from infra.spec import cluster_names
from platform_charts.images.mlflow_server import names
from platform_charts.images.mlflow_server.__main__ import main
from platform_charts.images.mlflow_server.environment import (
    BootstrapSettings,
    DatabaseSettings,
    EnvironmentVariableError,
    ServerSettings,
)

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


def test_the_image_and_the_platform_use_the_same_secret_names() -> None:
    assert cluster_names.MLFLOW_CREDENTIALS == names.TEAM_SECRET
    assert cluster_names.MLFLOW_SERVER_SECRET == names.SERVER_SECRET


def test_lists_may_contain_spaces_and_teams_are_optional() -> None:
    assert ServerSettings.from_environment(SERVER).allowed_hosts == ("mlflow", "mlflow.mlflow")
    assert BootstrapSettings.from_environment({"POD_NAMESPACE": "mlflow", "TEAMS": ""}).teams == ()


def test_a_missing_variable_and_an_invalid_number_are_named() -> None:
    for name in DATABASE:
        with pytest.raises(EnvironmentVariableError, match=name):
            DatabaseSettings.from_environment({**DATABASE, name: " "})
    for name in SERVER:
        with pytest.raises(EnvironmentVariableError, match=name):
            ServerSettings.from_environment({key: value for key, value in SERVER.items() if key != name})
    for value in ("0", "two", "-1", "1.5"):
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
