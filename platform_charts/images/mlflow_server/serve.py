"""Run MLflow's server and keep its database credentials current.

RDS rotates the master password every seven days. Open connections stay open, but new ones soon need the new password, so
this reads the secret every minute instead of relying on a restart of the failing pod.
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
from .names import ACCOUNTS, ADMINISTRATOR, ARTIFACT_FOLDER, RUNS

_AUTH_CONFIG = """[mlflow]
default_permission = NO_PERMISSIONS
grant_default_workspace_access = false
database_uri = {accounts}
admin_username = {administrator}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
auth_cache_ttl_seconds = 60
"""
"""The cache avoids a key derivation per request; a changed password takes up to a minute to apply."""


def command(settings: ServerSettings, database: Database) -> tuple[str, ...]:
    """The server's command line, which contains no secrets."""
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
        f"--artifacts-destination=s3://{settings.bucket}/{ARTIFACT_FOLDER}",
        "--default-artifact-root=mlflow-artifacts:/",
        "--enable-workspaces",
        f"--allowed-hosts={','.join(hosts)}",
    )


def environment(settings: ServerSettings, *, auth_config: Path) -> dict[str, str]:
    """The server's environment; `auth_config` is the configuration file of basic authentication."""
    return {
        **os.environ,
        "MLFLOW_AUTH_CONFIG_PATH": str(auth_config),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": settings.session_key,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # jobs that evaluate language models, each in a process
    }


def serve(settings: ServerSettings, database: Database) -> int:
    """Run the server until it exits; SIGTERM is forwarded for a graceful shutdown.

    Returns:
        the server's exit status.

    Raises:
        Exception: botocore's; the secret cannot be read at startup.
    """
    database.refresh_credentials()
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
        database.refresh_credentials()
    except (BotoCoreError, ClientError) as error:
        # The current credentials are valid until the next rotation; the next refresh retries.
        print(
            f"cannot read the database's secret, keeping the current credentials: {error}", file=sys.stderr, flush=True
        )
