"""The image's program with a real PostgreSQL server that requires passwords, and S3 and Secrets Manager APIs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import psycopg2

from platform_charts.images.mlflow_server.cleanup import clean_up
from platform_charts.images.mlflow_server.database import Database
from platform_charts.images.mlflow_server.environment import BootstrapSettings, CleanupSettings, DatabaseSettings
from platform_charts.images.mlflow_server.names import RUNS, SERVER_SECRET, TEAM_SECRET
from tests.engines.mlflow_server import MlflowServer
from tests.engines.ports import free_port
from tests.engines.report_table import skipped
from tests.engines.s3 import REGION, S3Api

SECRET = "rds-master"
USER = "mlflow"
TEAMS = ("vision", "speech")
SERVICE = "mlflow.mlflow.svc.cluster.local"


@dataclass
class MemorySecrets:
    """In-memory Secrets; implements `Secrets`."""

    found: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def ensure(self, namespace: str, name: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """Create a Secret or add missing keys."""
        self.found[namespace, name] = {**wanted, **self.found.get((namespace, name), {})}
        return self.found[namespace, name]


class Platform:
    """The AWS services that the image's program uses.

    Attributes:
        database: the program's database server.
        secrets: the cluster's Secrets.
    """

    def __init__(self, superuser_url: str, s3_api: S3Api) -> None:
        self._superuser_url = superuser_url
        self._s3_api = s3_api
        self.secrets = MemorySecrets()
        address = urlsplit(superuser_url)
        assert address.hostname is not None
        assert address.port is not None
        self.database_settings = DatabaseSettings(
            host=address.hostname, port=address.port, secret=SECRET, region=REGION
        )
        self.database = Database(self.database_settings, self.client("secretsmanager"))
        self.bootstrap_settings = BootstrapSettings(teams=TEAMS, namespace="mlflow")

    def administer(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the database's superuser; returns the rows of the last one."""
        return self._execute(*statements, dbname="postgres")

    def execute_in(self, database: str, statement: str) -> None:
        """Run a statement in another database."""
        self._execute(statement, dbname=database)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement in MLflow's database; returns its rows."""
        return self._execute(statement, dbname=RUNS)

    def _execute(self, *statements: str, dbname: str) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(self._superuser_url.replace("+psycopg2", ""), dbname=dbname)
        connection.autocommit = True
        with closing(connection), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def set_up(self) -> None:
        """Create the master user, with password authentication, and its secret."""
        [(hba,)] = self.administer(f"CREATE ROLE {USER} LOGIN CREATEDB", "SHOW hba_file")
        rules = Path(hba).read_text(encoding="utf-8")
        Path(hba).write_text(f"host all {USER} 127.0.0.1/32 scram-sha-256\n{rules}", encoding="utf-8")
        self.administer("SELECT pg_reload_conf()")
        self.client("secretsmanager").create_secret(Name=SECRET, SecretString="{}")
        self.rotate("first: with \\ and :")

    def rotate(self, password: str) -> None:
        """Rotate the master password as RDS does: first in the database, then in the secret."""
        self.administer(f"ALTER ROLE {USER} PASSWORD '{password}'")
        login = json.dumps({"username": USER, "password": password})
        self.client("secretsmanager").put_secret_value(SecretId=SECRET, SecretString=login)

    def cut_connections(self) -> None:
        """Terminate the master user's connections."""
        self.administer("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'mlflow'")

    def remove(self) -> None:
        """Remove databases, user and secret."""
        self.administer(
            "DROP DATABASE IF EXISTS mlflow WITH (FORCE)",
            "DROP DATABASE IF EXISTS mlflow_auth WITH (FORCE)",
            f"DROP ROLE {USER}",
        )
        self.client("secretsmanager").delete_secret(SecretId=SECRET, ForceDeleteWithoutRecovery=True)

    def credentials(self, team: str) -> dict[str, str]:
        """Environment variables of a team's jobs, from their Secret."""
        return self.secrets.found[team, TEAM_SECRET]

    @property
    def server_secret(self) -> dict[str, str]:
        """Data of the server's Secret."""
        return self.secrets.found["mlflow", SERVER_SECRET]

    def server(self, folder: Path) -> MlflowServer:
        """The image's `serve` process, not started."""
        port = free_port()
        environment = {
            **self.program_environment,
            "MLFLOW_ALLOWED_HOSTS": f"{SERVICE},localhost,127.0.0.1",
            "MLFLOW_WORKERS": "1",
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self.server_secret["flask-secret-key"],
            "MLFLOW_PORT": "tcp://10.100.0.7:5000",  # as Kubernetes sets it for the Service
            "LISTEN_HOST": "127.0.0.1",
            "LISTEN_PORT": str(port),
            "LOGIN_REFRESH_SECONDS": "1",
        }
        return MlflowServer(
            [sys.executable, "-m", "platform_charts.images.mlflow_server", "serve"],
            port=port,
            environment=environment,
            log=folder / "server.log",
        )

    def clean_up(self, *, is_preview: bool = False, storage_gib: float = 100) -> int:
        """Run the image's cleanup of what was deleted more than 30 days ago; returns its exit status."""
        settings = CleanupSettings(
            bucket=self._s3_api.bucket,
            older_than_days=30,
            storage_bytes=round(storage_gib * 2**30),
            is_preview=is_preview,
        )
        return clean_up(settings, self.database, self.client("s3"))

    @property
    def bucket(self) -> str:
        """Name of the artifact bucket."""
        return self._s3_api.bucket

    @property
    def program_environment(self) -> dict[str, str]:
        """Environment variables of the image's programs: the AWS API, the database and the bucket."""
        settings = self.database_settings
        return {
            **self._s3_api.environment(),
            "MLFLOW_DB_HOST": settings.host,
            "MLFLOW_DB_PORT": str(settings.port),
            "MLFLOW_DB_SECRET_ARN": settings.secret,
            "AWS_REGION": settings.region,
            "MLFLOW_ARTIFACT_BUCKET": self._s3_api.bucket,
        }

    def object_names(self) -> list[str]:
        """Keys of all objects in the artifact bucket."""
        return self._s3_api.object_names()

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 makes its classes at run time
        """A client of an AWS service."""
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client(service, endpoint_url=self._s3_api.endpoint, region_name=REGION, **keys)


@contextmanager
def platform(postgres_url: str | None, s3_api: S3Api) -> Iterator[Platform]:
    """Empty services; skips without PostgreSQL."""
    if postgres_url is None:
        skipped("PostgreSQL", "no initdb on PATH or under /usr/lib/postgresql", "apt-get install postgresql")
    services = Platform(postgres_url, s3_api)
    services.set_up()
    try:
        yield services
    finally:
        services.remove()
