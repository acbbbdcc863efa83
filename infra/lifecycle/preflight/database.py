"""Whether RDS can take MLflow's database to the PostgreSQL major of the settings, and what is needed before.

RDS refuses a lower major, and a higher one without AllowMajorVersionUpgrade (RDS API reference, ModifyDBInstance).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from infra.kube.aws_errors import aws_refusal
from infra.lifecycle.account.aws import AWS_ERRORS, Session
from infra.lifecycle.preflight.answer import Answer
from infra.lifecycle.preflight.case import Case
from infra.lifecycle.upgrade.backups import RECENT, ClusterBackups
from infra.spec.names import database_identifier

_GUIDE = "docs/UPGRADING.md#a-new-major-of-postgresql"


def the_database_can_have_its_major(case: Case) -> Iterator[Answer]:
    """RDS can upgrade the database to its major, the settings allow it, and a backup is younger than a day."""
    name, wanted = database_identifier(case.settings), case.settings.database.engine_version
    live = read_database(case.session, name)
    if live is None or (major := _major(live["EngineVersion"])) == wanted:
        return
    runs = f"database {name} runs PostgreSQL {live['EngineVersion']}, database.engine_version is {wanted}"
    if int(wanted) < int(major):
        yield f"{runs}: RDS never goes back", f'set database.engine_version: "{major}"'
    elif not case.settings.database.allow_major_upgrade:
        remedy = f"read {_GUIDE}, then set database.allow_major_upgrade: true"
        yield f"{runs}: the upgrade takes MLflow offline for minutes, and has no way back", remedy
    else:
        yield from _obstacles(case, live, runs)


def read_database(session: Session, name: str) -> Mapping[str, Any] | None:
    """What RDS says about an instance; None if there is none.

    Raises:
        ClientError: RDS refuses to answer.
    """
    try:
        found: list[Mapping[str, Any]] = session.client("rds").describe_db_instances(DBInstanceIdentifier=name)[
            "DBInstances"
        ]
    except ClientError as error:
        if error.response["Error"]["Code"] == "DBInstanceNotFound":
            return None
        raise
    return found[0]


def pending_changes(session: Session, name: str) -> Mapping[str, Any]:
    """What RDS has been told to change in an instance, and has not yet: by the names of its API; nothing if there is no instance.

    Raises:
        RefusedError: RDS does not answer, or refuses to.
    """
    try:
        live = read_database(session, name) or {}
    except AWS_ERRORS as error:
        remedy = "sign in, e.g. `aws sso login`, with rds:DescribeDBInstances"
        raise aws_refusal(f"cannot read database {name}", error, remedy=remedy) from error
    return live.get("PendingModifiedValues") or {}


def _obstacles(case: Case, live: Mapping[str, Any], runs: str) -> Iterator[Answer]:
    """What keeps an upgrade from being made that the settings allow."""
    wanted, version = case.settings.database.engine_version, live["EngineVersion"]
    status = live["DBInstanceStatus"]
    if status != "available":
        yield f"{runs}: RDS upgrades only an available instance, and it is {status}", "wait until it is available"
    rds = case.session.client("rds")
    offered = rds.describe_db_engine_versions(Engine="postgres", EngineVersion=version)["DBEngineVersions"]
    majors = sorted({_major(one["EngineVersion"]) for found in offered for one in found.get("ValidUpgradeTarget", ())})
    if wanted not in majors:
        remedy = f"choose one of {', '.join(majors)}" if majors else "let RDS upgrade the minor version first"
        yield f"{runs}: RDS does not upgrade {version} to {wanted}", remedy
    backups = None if case.api is None else ClusterBackups(case.api, now=case.now)
    if backups is not None and (running := backups.running()):
        yield f"{runs}: {running}", "wait until it ends"
    if _has_snapshot(rds, live["DBInstanceIdentifier"], now=case.now):
        return
    lacks = "there is no backup" if backups is None else backups.obstacle() or next(backups.gaps(), None)
    if lacks:
        snapshot = f"{live['DBInstanceIdentifier']}-before-{wanted}"
        command = f"aws rds create-db-snapshot --db-instance-identifier {live['DBInstanceIdentifier']} --db-snapshot-identifier {snapshot}"
        yield (
            f"{runs}: {lacks}, and no snapshot of the last day",
            f"run `{command}` and wait for it, or see docs/BACKUP.md",
        )


def _has_snapshot(rds: Any, name: str, *, now: datetime) -> bool:  # noqa: ANN401 - boto3's clients have no types
    """Whether somebody made a snapshot in the last day."""
    found = rds.describe_db_snapshots(DBInstanceIdentifier=name, SnapshotType="manual")["DBSnapshots"]
    return any(one["Status"] == "available" and now - one["SnapshotCreateTime"] < RECENT for one in found)


def _major(version: str) -> str:
    return version.partition(".")[0]
