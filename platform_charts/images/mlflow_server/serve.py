"""Run MLflow's server and keep its login to the database current.

RDS rotates the master password every seven days. Connections that are open stay open, new ones need the new password within moments; so
the secret is read again every minute, instead of a pod that has to fail before it is started anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from .database import Database
from .environment import ServerSettings
from .names import ACCOUNTS, ADMINISTRATOR, RUNS

_AUTH_CONFIG = """[mlflow]
default_permission = NO_PERMISSIONS
grant_default_workspace_access = false
database_uri = {accounts}
admin_username = {administrator}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""
"""The cache spares a key derivation for each request; a changed password is accepted everywhere a minute later."""


def command(settings: ServerSettings, database: Database) -> tuple[str, ...]:
    """The server's command line; there is nothing secret in it."""
    hosts = [pattern for host in settings.allowed_hosts for pattern in (host, f"{host}:*")]
    return (
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--app-name=basic-auth",
        f"--host={settings.host}",
        f"--port={settings.port}",
        f"--workers={settings.workers}",
        f"--backend-store-uri={database.uri(RUNS)}",
        "--serve-artifacts",
        f"--artifacts-destination=s3://{settings.bucket}/mlflow",
        "--default-artifact-root=mlflow-artifacts:/",
        "--enable-workspaces",
        f"--allowed-hosts={','.join(hosts)}",
    )


def environment(settings: ServerSettings, *, auth_config: Path) -> dict[str, str]:
    """The server's environment; `auth_config` is the file with the settings of basic authentication."""
    return {
        **os.environ,
        "MLFLOW_AUTH_CONFIG_PATH": str(auth_config),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": settings.session_key,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # evaluation jobs of language models; each is a process
    }


def serve(settings: ServerSettings, database: Database) -> int:
    """Run the server until it ends or SIGTERM comes, which it is given to end its requests.

    Returns:
        the server's exit status.

    Raises:
        Exception: botocore's; the login cannot be read at the start.
    """
    database.log_in()
    auth_config = Path(tempfile.mkdtemp(prefix="mlflow-auth-")) / "basic_auth.ini"
    auth_config.write_text(
        _AUTH_CONFIG.format(accounts=database.uri(ACCOUNTS), administrator=ADMINISTRATOR), encoding="utf-8"
    )
    server = subprocess.Popen(command(settings, database), env=environment(settings, auth_config=auth_config))
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while True:
        try:
            return server.wait(timeout=settings.refresh_seconds)
        except subprocess.TimeoutExpired:
            _refresh(database)


def _refresh(database: Database) -> None:
    try:
        database.log_in()
    except (BotoCoreError, ClientError) as error:
        # The login at hand is good for as long as it has not been rotated; the next round asks again.
        print(
            f"the database's secret could not be read, its login stays as it was: {error}", file=sys.stderr, flush=True
        )
