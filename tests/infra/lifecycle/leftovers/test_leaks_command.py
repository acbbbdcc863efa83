"""`leaks`: what is left, what is kept, what belongs to a stack that exists, and what could not be looked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.cli import main
from infra.lifecycle.leftovers.audit import audit
from infra.lifecycle.leftovers.found import Found, Key
from infra.lifecycle.leftovers.inventory import Inventory
from infra.lifecycle.leftovers.keeping import reason_to_keep
from infra.lifecycle.leftovers.policy import audit_policy
from infra.spec.catalog import load_catalog
from infra.spec.protection import EnvironmentKind
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, Planter
from tests.infra.lifecycle.leftovers.plants import PLANTS, cluster, database, plant_stack, volume, vpc
from tests.infra.lifecycle.leftovers.wire import Faulty, Wire, fault
from tests.infra.spec.samples import changed, dev_sections

pytestmark = pytest.mark.usefixtures("commands")


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> StackSettings:
    changes = {"environment.name": "test-1", "aws.allowed_accounts": [ACCOUNT]}
    made = from_mapping(changed(dev_sections(), changes), file="sample")
    monkeypatch.setattr("infra.lifecycle.commands.leftovers.load_environment", lambda _: made)
    return made


def leaks(*arguments: str) -> int:
    return main(["leaks", "--env", "test-1", *arguments])


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Callable[[], Mapping[str, Any]]:
    """Runs the command with --json; returns what it printed, with its exit status."""

    def run() -> Mapping[str, Any]:
        status = leaks("--json")
        printed: Mapping[str, Any] = json.loads(capsys.readouterr().out)
        return {**printed, "status": status}

    return run


Document = Callable[[], Mapping[str, Any]]


def test_everything_of_a_stack_is_listed_with_the_command_that_removes_it_and_nothing_of_others(
    ours: Owner, rival: Owner, stranger: Owner, document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = plant_stack(rival).keys | plant_stack(stranger).keys
    found = document()
    assert (found["status"], found["clean"], found["left"], found["not_audited"]) == (0, True, [], [])
    assert leaks() == 0
    assert "nothing is left" in capsys.readouterr().out
    mine = plant_stack(ours).keys
    found = document()
    assert found["status"] == 1
    listed = {Key(one["kind"], one["id"], one["region"]) for one in found["left"]}
    assert {key.kind for key in mine - listed} == {"recovery point"}, "which this kind of environment keeps"
    assert [one["kind"] for one in found["kept"]] == ["recovery point"]
    assert not theirs & listed
    assert all(one["command"].startswith(("aws ", "while aws ")) for one in found["left"])


def test_the_list_says_what_a_leftover_costs_and_whose_it_is(ours: Owner, capsys: pytest.CaptureFixture[str]) -> None:
    planter = Planter(ours)
    one, network = volume(planter), vpc(planter)
    PLANTS["S3 bucket"](planter)
    assert leaks() == 1
    printed = capsys.readouterr().out
    (row,) = (line for line in printed.splitlines() if one in line and "8.00" in line)
    assert "tag kubernetes.io/cluster/rtp-test-1" in row
    assert f"  aws ec2 delete-volume --region us-east-1 --volume-id {one}\n" in printed
    assert printed.index(f"delete-vpc --region us-east-1 --vpc-id {network}") < printed.index("delete-bucket")
    assert "$8.00 a month, and 1 without a price" in printed


def test_all_rules_are_revoked_before_the_first_security_group_is_deleted(ours: Owner, document: Document) -> None:
    PLANTS["security group"](Planter(ours))
    verbs = [line.split()[2] for line in document()["commands"]]
    revoke, delete = "revoke-security-group-ingress", "delete-security-group"
    assert verbs == [revoke, revoke, delete, delete, "delete-vpc"]


def test_a_protected_database_gets_a_last_snapshot(ours: Owner, clients: Clients, document: Document) -> None:
    name = database(Planter(ours))
    clients.of("rds", REGION).modify_db_instance(DBInstanceIdentifier=name, DeletionProtection=True)
    (line,) = document()["commands"]
    modify, delete = line.split("; ")
    assert modify.endswith(f"--db-instance-identifier {name} --no-deletion-protection --apply-immediately")
    assert delete.endswith(f"--db-instance-identifier {name} --final-db-snapshot-identifier {name}-last")


def test_what_cannot_be_looked_for_is_reported_and_fails(wire: Wire, document: Document) -> None:
    for operation, protocol, kind, code, status in (
        ("ec2.DescribeAddresses", "ec2", "elastic IP address", "UnauthorizedOperation", 403),
        ("rds.DescribeDBSnapshots", "query", "RDS snapshot", "InternalFailure", 500),
        ("kms.ListAliases", "json", "KMS alias", "ThrottlingException", 400),
    ):
        wire.stand_in = Faulty(operation, fault(code, status, protocol=protocol))
        found = document()
        assert (found["status"], found["clean"], found["left"]) == (1, False, []), operation
        (unknown,) = found["not_audited"]
        assert (unknown["kind"], unknown["region"]) == (kind, REGION)
        assert unknown["reason"].startswith(f"{operation.partition('.')[2]}: {code}: injected")


def test_what_was_found_before_a_denial_is_listed(ours: Owner, wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    network = vpc(Planter(ours))
    wire.stand_in = Faulty("ec2.DescribeAddresses", fault("UnauthorizedOperation", 403))
    assert leaks() == 1
    printed = capsys.readouterr().out
    assert network in printed
    assert "not audited: elastic IP address in us-east-1: DescribeAddresses: UnauthorizedOperation: injected" in printed
    assert "nothing is left" not in printed


def put_pulumi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    binary = folder / "pulumi"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_resources_of_a_stack_that_exists_are_no_leaks(
    ours: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Document
) -> None:
    planter = Planter(ours)
    not_in_state = ("elastic IP address", "EC2 instance")
    for kind in ("EKS node group", "EBS volume", "log group", "network interface", *not_in_state):
        PLANTS[kind](planter)
    in_state = [{"type": "aws:x", "id": key.id} for key in planter.keys if key.kind not in not_in_state]
    state = {"deployment": {"resources": [{"type": "pulumi:providers:aws", "id": "x"}, *in_state]}}
    (tmp_path / "state.json").write_text(json.dumps(state))
    put_pulumi(tmp_path, monkeypatch, f"cat {tmp_path}/state.json")
    found = document()
    assert [one["kind"] for one in found["left"]] == ["elastic IP address"], "an interrupted creation left it"
    assert found["live"] == len(planter.keys) - 1
    assert (found["status"], found["state_known"]) == (1, True)


def test_without_a_state_everything_is_listed(
    ours: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: Document
) -> None:
    assert cluster(Planter(ours))
    for error, is_known in (("no stack named 'test-1' found", True), ("not logged in", False)):
        put_pulumi(tmp_path, monkeypatch, f'echo "error: {error}" >&2; exit 255')
        found = document()
        assert {one["kind"] for one in found["left"]} == {"EKS cluster", "subnet", "VPC"}, error
        assert found["state_known"] is is_known, error


def test_another_account_is_refused(settings: StackSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = settings.model_copy(update={"aws": settings.aws.model_copy(update={"allowed_accounts": ("1" * 12,)})})
    monkeypatch.setattr("infra.lifecycle.commands.leftovers.load_environment", lambda _: elsewhere)
    assert leaks() == 3


def test_the_policy_is_printed_without_an_account(capsys: pytest.CaptureFixture[str], wire: Wire) -> None:
    assert leaks("--policy") == 0
    assert json.loads(capsys.readouterr().out) == audit_policy()
    assert wire.operations == []


FINAL = Found(id="rtp-test-1-mlflow-final-0123", kind="RDS snapshot", region=REGION, name="rtp-test-1-mlflow")
MANUAL = Found(id="rtp-test-1-mlflow-mine", kind="RDS snapshot", region=REGION, name="rtp-test-1-mlflow")
STATE = Found(id=f"rtp-test-1-state-{ACCOUNT}", kind="S3 bucket", region=REGION)
BUCKET = Found(id=f"rtp-test-1-artifacts-{ACCOUNT}", kind="S3 bucket", region=REGION)
BACKUP = Found(id="db-1", kind="RDS retained backup", region=REGION, name="rtp-test-1-mlflow")


def test_what_an_environment_leaves_on_purpose_is_listed_apart(ours: Owner, clients: Clients) -> None:
    found = (FINAL, MANUAL, STATE, BUCKET, BACKUP)
    for kind, kept in (
        (EnvironmentKind.TEST, [STATE]),
        (EnvironmentKind.DEV, [FINAL, STATE, BACKUP]),
        (EnvironmentKind.STAGING, [FINAL, STATE, BACKUP]),
        (EnvironmentKind.PROD, [FINAL, STATE, BUCKET, BACKUP]),
    ):
        result = audit(Inventory(found, ()), ours.stack, kind, clients=clients, catalog=load_catalog(), state=None)
        assert [one.label for one in result.kept] == [one.label for one in kept], kind
        assert {one.id for one in result.left} == {one.id for one in found if one not in kept}, kind
        assert all(reason_to_keep(one, kind) for one in kept), kind
