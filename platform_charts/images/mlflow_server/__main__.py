"""Command line of the image.

Exit status: 0 done, 1 failed, the database is almost full (cleanup) or a drill has found differences, 2 invalid environment or command
line, 3 refused, otherwise an unexpected error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import boto3

from .backup.errors import BackupError, explained
from .database import Database
from .environment import (
    BackupSettings,
    BootstrapSettings,
    CleanupSettings,
    DatabaseSettings,
    DrillSettings,
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
    options = parser().parse_args(arguments)
    commands = {
        "migrate": _migrate,
        "cleanup": lambda: _clean_up(is_preview=options.preview),
        "backup": _back_up,
        "restore-drill": lambda: _drill(backup=options.backup, keeps=options.keep),
        "switch": _switch,
        "discard": lambda: _discard(options.database),
        "serve": _serve,
    }
    try:
        return commands[options.command]()
    except EnvironmentVariableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BackupError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status


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


def _back_up() -> int:
    settings = BackupSettings.from_environment(os.environ)
    database = _database()
    from .backup.take import take_backup  # noqa: PLC0415

    with explained("the backup failed"):
        take_backup(settings, database, boto3.client("s3"))
    return 0


def _drill(*, backup: str | None, keeps: bool) -> int:
    settings = DrillSettings.from_environment(os.environ, backup=backup, keeps=keeps)
    database = _database()
    from .backup.drill import restore_drill  # noqa: PLC0415

    with explained("the drill failed"):
        report = restore_drill(settings, database, boto3.client("s3"))
    print(*report.lines(), sep="\n", flush=True)
    return 0 if report.passed else 1


def _switch() -> int:
    database = _database()
    from .backup.switch import switch  # noqa: PLC0415

    with explained("the databases were not switched"):
        switch(database)
    return 0


def _discard(name: str) -> int:
    database = _database()
    from .backup.switch import discard  # noqa: PLC0415

    with explained(f"{name} was not dropped"):
        discard(database, name)
    return 0


def _database() -> Database:
    settings = DatabaseSettings.from_environment(os.environ)
    return Database(settings, boto3.client("secretsmanager", region_name=settings.region))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m mlflow_server", description="MLflow on the platform.")
    commands = made.add_subparsers(metavar="command", required=True, dest="command")
    commands.add_parser("migrate", help="migrate databases, accounts and Secrets to this release")
    commands.add_parser("serve", help="run the server")
    cleanup = commands.add_parser("cleanup", help="delete for good what was deleted long ago")
    cleanup.add_argument("--preview", action="store_true", help="list what would be deleted, and delete nothing")
    commands.add_parser("backup", help="write databases and lists of artifacts and checkpoints to the bucket")
    drill = commands.add_parser("restore-drill", help="restore a backup beside the databases, compare, and drop it")
    drill.add_argument("--backup", metavar="NAME", help="the backup; default: the newest")
    drill.add_argument("--keep", action="store_true", help="keep what was restored, for `switch`")
    commands.add_parser("switch", help="put restored databases in the place of those that serve")
    discard = commands.add_parser("discard", help="drop a database that `switch` has replaced")
    discard.add_argument("database", metavar="DATABASE", help="its name")
    return made


if __name__ == "__main__":
    sys.exit(main())
