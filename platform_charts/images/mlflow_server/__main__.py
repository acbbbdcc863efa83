"""Command line of the image.

Exit status: 0 done, 2 invalid environment or command line, otherwise an unexpected error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import boto3

from .database import Database
from .environment import BootstrapSettings, DatabaseSettings, EnvironmentVariableError, ServerSettings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command with settings from environment variables.

    Args:
        arguments: the command line; None for the process's own.

    Returns:
        the exit status of the process.
    """
    command = _parser().parse_args(arguments).command
    try:
        return _migrate() if command == "migrate" else _serve()
    except EnvironmentVariableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _migrate() -> int:
    settings = BootstrapSettings.from_environment(os.environ)
    database = _database()
    # Late imports: the server needs neither, and both take seconds.
    from .cluster import KubernetesSecrets  # noqa: PLC0415
    from .migrate import migrate  # noqa: PLC0415

    migrate(settings, database, KubernetesSecrets.of_this_pod())
    return 0


def _serve() -> int:
    from .serve import serve  # noqa: PLC0415

    return serve(ServerSettings.from_environment(os.environ), _database())


def _database() -> Database:
    settings = DatabaseSettings.from_environment(os.environ)
    return Database(settings, boto3.client("secretsmanager", region_name=settings.region))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mlflow_server", description="MLflow on the platform.")
    commands = parser.add_subparsers(metavar="command", required=True, dest="command")
    commands.add_parser("migrate", help="migrate databases, accounts and Secrets to this release")
    commands.add_parser("serve", help="run the server")
    return parser


if __name__ == "__main__":
    sys.exit(main())
