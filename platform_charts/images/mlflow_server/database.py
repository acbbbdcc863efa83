"""The database server: whose login RDS keeps and rotates, and which holds two databases, of the runs and of the accounts.

The password is in no URI, argument or environment variable. It lies in a file that every URI names and that libpq, PostgreSQL's client
library, reads at each new connection (PostgreSQL documentation, "The Password File"): a rotated password takes effect without a restart
once the file has been written anew.
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

_MAINTENANCE = "postgres"
"""Database that every PostgreSQL server has."""


class Database:
    """The server, and the file that has its password.

    Args:
        settings: where it is.
        secrets: client of Secrets Manager.
    """

    def __init__(self, settings: DatabaseSettings, secrets: Any) -> None:  # noqa: ANN401 - boto3 has no types
        self._settings = settings
        self._secrets = secrets
        self._user = ""
        self._password_file = Path(tempfile.mkdtemp(prefix="mlflow-database-")) / "password"

    def log_in(self) -> None:
        """Take the login out of its secret, as it is now, and have libpq use it from the next connection on.

        Raises:
            Exception: botocore's; the secret cannot be read.
        """
        login = json.loads(self._secrets.get_secret_value(SecretId=self._settings.secret)["SecretString"])
        self._user = login["username"]
        password = login["password"].replace("\\", "\\\\").replace(":", "\\:")
        fresh = self._password_file.with_suffix(".new")
        fresh.touch(mode=0o600)  # libpq ignores a file that others may read
        fresh.write_text(f"*:*:*:*:{password}\n", encoding="utf-8")
        fresh.replace(self._password_file)

    def uri(self, name: str) -> str:
        """SQLAlchemy's address of a database; in the place of the password it names the file that has it."""
        settings = self._settings
        return (
            f"postgresql+psycopg2://{self._user}@{settings.host}:{settings.port}/{name}?passfile={self._password_file}"
        )

    def create(self, name: str) -> None:
        """Make a database, unless it is there.

        Raises:
            psycopg2.Error: the server is away or refuses.
        """
        settings = self._settings
        connection = psycopg2.connect(
            host=settings.host,
            port=settings.port,
            user=self._user,
            dbname=_MAINTENANCE,
            passfile=str(self._password_file),
        )
        connection.autocommit = True  # CREATE DATABASE runs in no transaction
        with closing(connection), connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if cursor.fetchone() is None:
                cursor.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def upgrade(self) -> None:
        """Bring both schemas to the version of the MLflow that is installed; nothing to do is no error.

        Raises:
            subprocess.CalledProcessError: a migration failed; it has printed why.
        """
        self._run("mlflow", "db", "upgrade", self.uri(RUNS))
        self._run("mlflow.server.auth", "db", "upgrade", "--url", self.uri(ACCOUNTS))

    def _run(self, module: str, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", module, *arguments], check=True)
