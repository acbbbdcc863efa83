"""One deployment of the server for all of its tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mlflow import MlflowClient

from platform_charts.images.mlflow_server.backup.manifest import Manifest
from platform_charts.images.mlflow_server.migrate import migrate
from tests.engines.mlflow_server import MlflowServer
from tests.engines.report_table import ran
from tests.engines.s3 import S3Api
from tests.platform_charts.images.mlflow_server.backups import Backed, fill
from tests.platform_charts.images.mlflow_server.platform import TEAMS, Platform, platform


@pytest.fixture(scope="session")
def services(postgres_url: str | None, s3_api: S3Api) -> Iterator[Platform]:
    """The services of one deployment, migrated."""
    with platform(postgres_url, s3_api) as found:
        migrate(found.bootstrap_settings, found.database, found.secrets)
        yield found


@pytest.fixture(scope="session")
def server(services: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    """The server of this deployment, which ends with SIGTERM and leaves no process."""
    found = services.server(tmp_path_factory.mktemp("server"))
    found.start()
    ran("MLflow server")
    yield found
    try:
        assert (found.stop(), found.processes()) == (0, [])
    finally:
        found.kill()


@pytest.fixture(scope="session")
def backed(server: MlflowServer, services: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backed]:
    """A run of each team with all that the trainer records, in a bucket with versions."""
    found = Backed(services)
    found.s3.put_bucket_versioning(Bucket=services.bucket, VersioningConfiguration={"Status": "Enabled"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ENABLE_WORKSPACES", "true")
        for team in TEAMS:
            for name, value in services.credentials(team).items():
                patch.setenv(name, value)
            fill(MlflowClient(server.uri), tmp_path_factory.mktemp(team), name=f"backed-{team}")
    yield found
    found.drop_databases()


@pytest.fixture(scope="session")
def manifest(backed: Backed) -> Manifest:
    """A backup."""
    return backed.back_up()
