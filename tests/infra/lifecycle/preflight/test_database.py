"""An upgrade of the database's major is refused before it starts: against moto, and a double of RDS's list of upgrades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NoReturn

import boto3
import pytest
from botocore.client import BaseClient
from botocore.parsers import ResponseParserError

from infra.lifecycle.preflight.checks import problems
from infra.lifecycle.preflight.database import pending_changes, the_database_can_have_its_major
from infra.lifecycle.rollout.database import explain_database
from infra.spec.errors import RefusedError
from tests.infra.lifecycle.preflight.test_checks import case, quotas  # noqa: F401 - a fixture

LIVE = "17.5"
URN = "urn:pulumi:dev::p::rtp:aws:Database$aws:rds/instance:Instance::mlflow"

_MAKE_CALL = BaseClient._make_api_call


OFFERED = ["17.6", "18.1"]


def _answer(client: BaseClient, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    if operation == "DescribeDBEngineVersions":
        assert arguments == {"Engine": "postgres", "EngineVersion": LIVE}
        return {"DBEngineVersions": [{"ValidUpgradeTarget": [{"EngineVersion": version} for version in OFFERED]}]}
    return _MAKE_CALL(client, operation, arguments)  # type: ignore[no-any-return]


@pytest.fixture
def database(quotas: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811 - moto runs
    """The database of the environment `dev`, in version 17."""
    monkeypatch.setattr(BaseClient, "_make_api_call", _answer)
    rds = boto3.client("rds", region_name="us-east-1")
    made = {"DBInstanceClass": "db.t4g.medium", "Engine": "postgres", "EngineVersion": LIVE, "AllocatedStorage": 20}
    rds.create_db_instance(
        DBInstanceIdentifier="rtp-dev-mlflow", MasterUsername="m", MasterUserPassword="x" * 12, **made
    )
    return "rtp-dev-mlflow"


def found(major: str, *, is_allowed: bool = False) -> list[tuple[str, str]]:
    changes = {"database": {"engine_version": major, "allow_major_upgrade": is_allowed}}
    asked = replace(case(changes), now=datetime.now(UTC))
    return [(str(message), str(remedy)) for message, remedy in the_database_can_have_its_major(asked)]


@pytest.mark.usefixtures("quotas")
def test_a_database_that_does_not_exist_has_any_major() -> None:
    assert found("18") == []


@pytest.mark.usefixtures("database")
def test_the_same_major_is_no_upgrade_and_a_lower_one_is_impossible() -> None:
    assert found("17") == []
    [(message, remedy)] = found("16", is_allowed=True)
    assert "runs PostgreSQL 17.5, database.engine_version is 16" in message
    assert remedy == 'set database.engine_version: "17"'


def test_a_higher_major_needs_to_be_allowed_and_a_snapshot(database: str) -> None:
    [(_, remedy)] = found("18")
    assert "database.allow_major_upgrade: true" in remedy
    [(message, remedy)] = found("18", is_allowed=True)
    assert "no snapshot of the last day" in message
    assert f"--db-instance-identifier {database} --db-snapshot-identifier {database}-before-18" in remedy
    boto3.client("rds", region_name="us-east-1").create_db_snapshot(
        DBInstanceIdentifier=database, DBSnapshotIdentifier=f"{database}-before-18"
    )
    assert found("18", is_allowed=True) == []


@pytest.mark.usefixtures("database")
def test_a_major_to_which_rds_does_not_upgrade_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.OFFERED", ["17.6"])
    first, *_ = found("18", is_allowed=True)
    assert first[1] == "choose one of 17"


def explained(old: Mapping[str, Any], new: Mapping[str, Any], **pending: str) -> list[str]:
    steps = [{"urn": URN, "op": "update", "oldState": old, "newState": new}]
    return list(explain_database({"steps": steps}, pending=lambda: pending))


def test_an_immediate_change_says_which_pending_ones_rds_makes_with_it() -> None:
    old = {"inputs": {"instanceClass": "b"}}
    new = {"inputs": {"instanceClass": "b", "applyImmediately": True}}
    [line] = explained(old, new, DBInstanceClass="b")
    assert "DBInstanceClass: b" in line
    assert explained(old, new) == []


def test_pending_changes_are_those_of_rds_and_an_unreadable_answer_is_a_refusal(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, session = case(), boto3.Session(region_name="us-east-1")
    assert asked.caller.account
    assert pending_changes(session, "another") == {}
    assert pending_changes(session, database) == {}

    def page(*_: object) -> NoReturn:
        raise ResponseParserError("invalid XML received: <html>")

    monkeypatch.setattr(BaseClient, "_make_api_call", page)
    with pytest.raises(RefusedError):
        pending_changes(session, database)
    [problem] = problems(asked, [the_database_can_have_its_major])
    assert "HTTPS_PROXY" in problem.remedy


@pytest.mark.parametrize("is_immediate", [True, False])
def test_a_preview_says_what_takes_the_database_offline_and_when(*, is_immediate: bool) -> None:
    old = {
        "inputs": {"instanceClass": "a", "engineVersion": "17"},
        "outputs": {"maintenanceWindow": "mon:03:00-mon:04:00"},
    }
    new = {"inputs": {"instanceClass": "b", "engineVersion": "17", "multiAz": True, "applyImmediately": is_immediate}}
    [line] = explained(old, new)
    assert ("at once: " in line, "mon:03:00-mon:04:00" in line) == (is_immediate, not is_immediate)
    new["inputs"] = {**old["inputs"], "multiAz": True}
    assert explained(old, new, DBInstanceClass="b") == []
    new["inputs"]["engineVersion"] = "18"
    [line] = explained(old, new)
    assert "from PostgreSQL 17 to 18" in line
