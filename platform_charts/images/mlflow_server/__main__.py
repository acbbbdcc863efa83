"""Command line of the image.

Exit status: 0 done, 1 the database is almost full (cleanup), 2 invalid environment or command line, otherwise an unexpected error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import boto3

from .database import Database
from .environment import (
    BootstrapSettings,
    CleanupSettings,
    DatabaseSettings,
    EnvironmentVariableError,
    ServerSettings,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command with settings from environment variables.

    Args:
        arguments: the command line; None for the process's own.

    Returns:
        the exit status of the process.
    """
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "migrate":
                return _migrate()
            case "cleanup":
                return _clean_up(is_preview=options.preview)
            case _:
                return _serve()
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


def _clean_up(*, is_preview: bool) -> int:
    settings = CleanupSettings.from_environment(os.environ, is_preview=is_preview)
    database = _database()
    from .cleanup import clean_up  # noqa: PLC0415

    return clean_up(settings, database, boto3.client("s3"))


def _database() -> Database:
    settings = DatabaseSettings.from_environment(os.environ)
    return Database(settings, boto3.client("secretsmanager", region_name=settings.region))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mlflow_server", description="MLflow on the platform.")
    commands = parser.add_subparsers(metavar="command", required=True, dest="command")
    commands.add_parser("migrate", help="migrate databases, accounts and Secrets to this release")
    commands.add_parser("serve", help="run the server")
    cleanup = commands.add_parser("cleanup", help="delete for good what was deleted long ago")
    cleanup.add_argument("--preview", action="store_true", help="list what would be deleted, and delete nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
