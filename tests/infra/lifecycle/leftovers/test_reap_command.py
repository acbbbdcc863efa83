"""`reap`: what it shows, what it asks, what it refuses and what it removes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.cli import main
from infra.lifecycle.leftovers.found import Key
from infra.lifecycle.leftovers.inventory import take
from infra.lifecycle.leftovers.policy import reaper_policy
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, Planter, stack_tags
from tests.infra.lifecycle.leftovers.plants import PLANTS, plant_stack
from tests.infra.lifecycle.leftovers.wire import Answer, Faulty, Wire, fault

pytestmark = pytest.mark.usefixtures("commands")


def hours_from_now(hours: float) -> str:
    """A time as the tag has it."""
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat()


def plant(clients: Clients, environment: str, *kinds: str, **tags: str) -> set[Key]:
    """Plant some kinds for a test cluster with these tags."""
    planter = Planter(Owner(environment=environment, tags=stack_tags(environment, **tags), clients=clients))
    for kind in kinds:
        PLANTS[kind](planter)
    return planter.keys


def reap(*arguments: str) -> int:
    return main(["reap", "--region", REGION, *arguments])


def everything(clients: Clients) -> set[Key]:
    """What the account has."""
    return {one.key for one in take(clients, [REGION]).found}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the user types, in turn; nothing if it is empty."""
    typed: list[str] = []

    def answer() -> str:
        if not typed:
            raise EOFError
        return typed.pop(0)

    monkeypatch.setattr("builtins.input", answer)
    return typed


SURE = ("--yes", "--account", ACCOUNT)


def test_only_what_has_expired_is_removed(clients: Clients, capsys: pytest.CaptureFixture[str]) -> None:
    expired = plant(clients, "test-1", "subnet", "S3 bucket", kind="test", expires=hours_from_now(-1))
    kept = plant(clients, "test-2", "subnet", kind="test", expires=hours_from_now(1))
    kept |= plant(clients, "test-3", "VPC", kind="test")
    kept |= plant(clients, "test-4", "VPC", kind="test", expires="tomorrow")
    kept |= plant(clients, "dev", "VPC", kind="dev", expires=hours_from_now(-1))
    assert reap(*SURE) == 0
    assert everything(clients) & (expired | kept) == kept
    printed = capsys.readouterr().out
    assert "4 test clusters in account 123456789012, us-east-1" in printed
    assert "test-3: no expiry; to remove it: make reap STACK=test-3" in printed
    assert "test-4: unreadable expiry; to remove it: make reap STACK=test-4" in printed
    assert "test-1: 3 resources to remove, $0.00 an hour and 1 without a price, in this order:" in printed
    assert "test-1: nothing is left" in printed


def test_a_dry_run_makes_no_call_that_changes_anything(
    ours: Owner, wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = plant_stack(replace(ours, tags={**ours.tags, "expires": hours_from_now(-1)})).keys
    wire.operations.clear()
    assert reap("--dry-run", *SURE) == 0
    assert len(wire.operations) > 50
    assert wire.changes == []
    printed = capsys.readouterr().out
    assert "dry run: nothing was changed" in printed
    assert all(key.id in printed for key in mine)
    kinds = ("EKS node group", "EKS cluster", "NAT gateway", "VPC", "IAM role")
    order = [printed.index(f" {kind}: ") for kind in kinds]
    assert order == sorted(order)


def test_a_cluster_in_a_region_that_is_not_looked_in_keeps_its_roles(
    clients: Clients, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is global is found from every region, and what is elsewhere needs it for its end."""
    tags = {"kind": "test", "expires": hours_from_now(-1)}
    mine = plant(clients, "test-1", "IAM role", **tags)
    ec2 = clients.of("ec2", "eu-west-1")
    pairs = [{"Key": key, "Value": value} for key, value in stack_tags("test-1", **tags).items()]
    ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": pairs}])
    assert reap(*SURE) == 1
    assert everything(clients) >= mine
    said = 'test-1: in other regions too; to remove all of it: make reap REGION="us-east-1 eu-west-1"'
    assert said in capsys.readouterr().out
    assert reap(*SURE, "--stack", "test-1") == 3
    assert "test-1 has resources in regions that are not looked in: eu-west-1" in capsys.readouterr().err
    assert reap(*SURE, "--region", "eu-west-1") == 0
    assert not everything(clients) & mine
    assert [one for one in ec2.describe_vpcs()["Vpcs"] if not one["IsDefault"]] == []


def test_a_region_that_cannot_be_asked_is_a_note(
    clients: Clients, wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where an organisation denies the regions that it does not use."""
    mine = plant(clients, "test-1", "VPC", kind="test", expires=hours_from_now(-1))
    wire.stand_in = Faulty(
        "resource-groups-tagging-api.GetResources", fault("AccessDeniedException", 400, protocol="json")
    )
    assert reap(*SURE) == 0
    assert not everything(clients) & mine
    assert "note: not asked for other parts of these clusters: ap-northeast-1: GetResources" in capsys.readouterr().out


def test_remains_without_tags_are_shown_and_removed_when_they_are_named(
    clients: Clients, stranger: Owner, capsys: pytest.CaptureFixture[str]
) -> None:
    remains, other = Planter(Owner(environment="test-7", tags={}, clients=clients)), Planter(stranger)
    for planter in (remains, other):
        PLANTS["log group"](planter)
    assert reap(*SURE) == 0
    assert "test-7: no expiry; to remove it: make reap STACK=test-7" in capsys.readouterr().out
    assert everything(clients) >= remains.keys | other.keys
    assert reap(*SURE, "--stack", "test-7") == 0
    assert everything(clients) & (remains.keys | other.keys) == other.keys


def test_another_answer_than_the_account_removes_nothing(clients: Clients, answers: list[str]) -> None:
    mine = plant(clients, "test-1", "VPC", kind="test", expires=hours_from_now(-1))
    for typed in ([], ["yes"], ["test-1"]):
        answers += typed
        assert reap() == 3
        assert everything(clients) >= mine, typed
    answers += [ACCOUNT]
    assert reap() == 0
    assert not everything(clients) & mine


def test_wrong_input_is_refused(clients: Clients, wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    plant(clients, "test-1", "VPC", kind="test", expires=hours_from_now(-1))
    wire.operations.clear()
    for arguments, status, message in (
        (["--yes"], 2, f"add ACCOUNT={ACCOUNT}"),
        (["--region", "us-east-9"], 2, "REGION=us-east-9: unknown region"),
        (["--account", "111122223333"], 3, f"the credentials are of account {ACCOUNT}, not of 111122223333"),
        (["--stack", "test-9"], 3, "no test cluster test-9 in this account"),
    ):
        assert reap(*arguments) == status, arguments
        assert message in capsys.readouterr().err
    assert wire.changes == []


def test_expired_credentials_are_refused(clients: Clients, wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    mine = plant(clients, "test-1", "VPC", kind="test", expires=hours_from_now(-1))
    wire.stand_in = Faulty("sts.GetCallerIdentity", fault("ExpiredToken", 403, protocol="query"))
    assert reap(*SURE) == 3
    said = capsys.readouterr().err
    assert "ExpiredToken" in said
    assert "remedy: sign in" in said
    wire.stand_in = lambda _: None
    assert everything(clients) >= mine


def test_credentials_that_expire_meanwhile_end_it_at_once(
    clients: Clients, wire: Wire, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = plant(clients, "test-1", "subnet", "S3 bucket", kind="test", expires=hours_from_now(-1))
    monkeypatch.setattr("infra.lifecycle.commands.reaper.time.sleep", lambda _: pytest.fail("it waited"))
    is_expired = False

    def expired(operation: str) -> Answer | None:
        nonlocal is_expired
        is_expired |= operation == "ec2.DeleteSubnet"
        protocol = {"ec2": "ec2", "iam": "query", "s3": "s3"}.get(operation.partition(".")[0], "json")
        return fault("RequestExpired", 400, protocol=protocol) if is_expired else None

    wire.stand_in = expired
    assert reap(*SURE) == 1
    printed = capsys.readouterr().out
    assert "not removed; run it again" in printed
    assert "RequestExpired" in printed
    wire.stand_in = lambda _: None
    assert everything(clients) >= mine


def test_nothing_is_removed_where_a_kind_could_not_be_listed(
    clients: Clients, wire: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = plant(clients, "test-1", "VPC", kind="test", expires=hours_from_now(-1))
    wire.stand_in = Faulty("eks.ListClusters", fault("AccessDeniedException", 403, protocol="json"))
    assert reap(*SURE) == 3
    said = capsys.readouterr()
    assert "not audited: EKS cluster in us-east-1: ListClusters: AccessDeniedException: injected" in said.out
    assert "nothing is removed, because some kinds could not be listed" in said.err
    wire.stand_in = lambda _: None
    assert everything(clients) >= mine


def test_what_remains_is_named_and_fails(clients: Clients, wire: Wire, capsys: pytest.CaptureFixture[str]) -> None:
    plant(clients, "test-1", "VPC", kind="test", expires=hours_from_now(-1))
    wire.stand_in = Faulty("ec2.DeleteVpc", fault("UnauthorizedOperation", 403))
    assert reap(*SURE) == 1
    printed = capsys.readouterr().out
    assert "test-1: 1 not removed; run it again\n  VPC vpc-" in printed
    assert "DeleteVpc: UnauthorizedOperation: injected" in printed


def test_the_json_result_has_every_stack_and_progress_goes_to_stderr(
    clients: Clients, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(clients, "test-1", "VPC", kind="test", expires=hours_from_now(-1))
    plant(clients, "test-2", "VPC", kind="test", expires=hours_from_now(1))
    assert reap(*SURE, "--json") == 0
    said = capsys.readouterr()
    found: Mapping[str, Any] = json.loads(said.out)
    assert [(one["environment"], one["standing"], one["chosen"]) for one in found["stacks"]] == [
        ("test-1", "expired", True),
        ("test-2", "live", False),
    ]
    assert [one["kind"] for one in found["stacks"][0]["resources"]] == ["VPC"]
    assert (found["account"], found["regions"], found["not_audited"]) == (ACCOUNT, [REGION], [])
    assert said.err.startswith("test-1: deleted VPC vpc-")


def test_an_account_without_test_clusters_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert reap(*SURE) == 0
    assert capsys.readouterr().out == "no test clusters in account 123456789012, us-east-1\n"


def test_the_policy_is_printed_without_an_account(capsys: pytest.CaptureFixture[str], wire: Wire) -> None:
    assert reap("--policy") == 0
    assert json.loads(capsys.readouterr().out) == reaper_policy()
    assert wire.operations == []
