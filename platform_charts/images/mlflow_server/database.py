"""The PostgreSQL server, with two databases for runs and accounts, and a master password that RDS rotates.

The password is in no URI, argument or environment variable, but in a file that every URI refers to. libpq reads the file
for each new connection (PostgreSQL documentation, "The Password File"), so a rotated password takes effect without a
restart once the file is updated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
from psycopg2 import sql

from .environment import DatabaseSettings
from .names import ACCOUNTS, RUNS

_IDLE_SECONDS = 60
"""A connection that waits for an hour of work elsewhere must not be forgotten: security groups on newer instance types track an idle
one for 350 seconds (EC2 documentation, "Idle connection tracking timeout")."""

MAINTENANCE = "postgres"
"""A database that exists on every PostgreSQL server."""


class Database:
    """The server and its password file.

    Args:
        settings: the server's address and secret.
        secrets: client of Secrets Manager.
    """

    def __init__(self, settings: DatabaseSettings, secrets: Any) -> None:  # noqa: ANN401 - boto3 has no types
        self._settings = settings
        self._secrets = secrets
        self._user = ""
        self._password_file = Path(tempfile.mkdtemp(prefix="mlflow-database-")) / "password"

    def refresh_credentials(self) -> None:
        """Read the credentials from the secret and update the password file for new connections.

        Raises:
            Exception: botocore's; the secret cannot be read.
        """
        credentials = json.loads(self._secrets.get_secret_value(SecretId=self._settings.secret)["SecretString"])
        self._user = credentials["username"]
        password = credentials["password"].replace("\\", "\\\\").replace(":", "\\:")
        fresh = self._password_file.with_suffix(".new")
        fresh.touch(mode=0o600)  # libpq ignores a file that others may read
        fresh.write_text(f"*:*:*:*:{password}\n", encoding="utf-8")
        fresh.replace(self._password_file)

    def uri(self, name: str) -> str:
        """SQLAlchemy URI of a database, with the password file instead of a password."""
        settings = self._settings
        return (
            f"postgresql+psycopg2://{self._user}@{settings.host}:{settings.port}/{name}?passfile={self._password_file}"
        )

    def connect(self, name: str, *, options: str = "") -> Any:  # noqa: ANN401 - psycopg2 has no types
        """A connection to a database, which the caller closes; `options` are settings of its session.

        Raises:
            psycopg2.Error: the server is unavailable or rejects the credentials.
        """
        settings = self._settings
        return psycopg2.connect(
            host=settings.host,
            port=settings.port,
            user=self._user,
            dbname=name,
            passfile=str(self._password_file),
            options=options,
            keepalives_idle=_IDLE_SECONDS,
        )

    def create(self, name: str) -> None:
        """Create a database if it does not exist.

        Raises:
            psycopg2.Error: the server is unavailable or rejects the statement.
        """
        connection = self.connect(MAINTENANCE)
        connection.autocommit = True  # CREATE DATABASE cannot run in a transaction
        with closing(connection), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def upgrade(self) -> None:
        """Migrate both schemas to the installed version of MLflow; does nothing if they are up to date.

        Raises:
            subprocess.CalledProcessError: a migration failed and has printed the error.
        """
        self._run("mlflow", "db", "upgrade", self.uri(RUNS))
        self._run("mlflow.server.auth", "db", "upgrade", "--url", self.uri(ACCOUNTS))

    def _run(self, module: str, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", module, *arguments], check=True)
