"""`reap`: what it shows, what it asks, what it refuses and what it removes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.cli import main
from infra.lifecycle.leftovers.found import Key
from infra.lifecycle.leftovers.policy import reaper_policy
from tests.infra.lifecycle.leftovers.conftest import everything
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, Planter, pairs_of, stack_tags
from tests.infra.lifecycle.leftovers.plants import PLANTS, plant_stack
from tests.infra.lifecycle.leftovers.wire import Answer, Faulty, Wire, fault

pytestmark = pytest.mark.usefixtures("commands")


EXPIRED, LIVE = (timedelta(hours=hours) for hours in (-1, 1))


@dataclass
class Reap:
    """The command, in moto's account."""

    clients: Clients
    wire: Wire
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> int:
        """Run it; returns its exit status."""
        return main(["reap", "--region", REGION, *arguments])

    def plant(
        self, environment: str, *kinds: str, expires: timedelta | str | None = EXPIRED, kind: str = "test"
    ) -> set[Key]:
        """Plant some kinds for a cluster, a VPC by default."""
        tags = {"kind": kind}
        if expires is not None:
            tags["expires"] = expires if isinstance(expires, str) else (datetime.now(UTC) + expires).isoformat()
        planter = Planter(Owner(environment=environment, tags=stack_tags(environment, **tags), clients=self.clients))
        for one in kinds or ("VPC",):
            PLANTS[one](planter)
        return planter.keys

    def left(self, keys: set[Key]) -> set[Key]:
        self.wire.stand_in = lambda _: None
        return everything(self.clients) & keys

    def printed(self) -> str:
        return self.capsys.readouterr().out

    def refused(self) -> str:
        return self.capsys.readouterr().err


@pytest.fixture
def reap(clients: Clients, wire: Wire, capsys: pytest.CaptureFixture[str]) -> Reap:
    return Reap(clients, wire, capsys)


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


def test_only_what_has_expired_is_removed(reap: Reap) -> None:
    expired = reap.plant("test-1", "subnet", "S3 bucket")
    kept = reap.plant("test-2", "subnet", expires=LIVE)
    kept |= reap.plant("test-3", expires=None)
    kept |= reap.plant("test-4", expires="tomorrow")
    kept |= reap.plant("dev", kind="dev")
    assert reap(*SURE) == 0
    assert reap.left(expired | kept) == kept
    printed = reap.printed()
    assert "4 test clusters in account 123456789012, us-east-1" in printed
    assert "test-3: no expiry; to remove it: make reap STACK=test-3" in printed
    assert "test-4: unreadable expiry; to remove it: make reap STACK=test-4" in printed
    assert "test-1: 3 resources to remove, $0.00 an hour and 1 without a price, in this order:" in printed
    assert "test-1: nothing is left" in printed


def test_a_dry_run_makes_no_call_that_changes_anything(ours: Owner, reap: Reap) -> None:
    expiry = (datetime.now(UTC) + EXPIRED).isoformat()
    mine = plant_stack(replace(ours, tags={**ours.tags, "expires": expiry})).keys
    reap.wire.operations.clear()
    assert reap("--dry-run", *SURE) == 0
    assert len(reap.wire.operations) > 50
    assert reap.wire.changes == []
    printed = reap.printed()
    assert "dry run: nothing was changed" in printed
    assert all(key.id in printed for key in mine)
    kinds = ("EKS node group", "EKS cluster", "NAT gateway", "VPC", "IAM role")
    order = [printed.index(f" {kind}: ") for kind in kinds]
    assert order == sorted(order)


def test_a_cluster_in_a_region_that_is_not_looked_in_keeps_its_roles(reap: Reap) -> None:
    """What is global is found from every region, and what is elsewhere needs it for its end."""
    mine = reap.plant("test-1", "IAM role")
    ec2 = reap.clients.of("ec2", "eu-west-1")
    tags = stack_tags("test-1", kind="test", expires=(datetime.now(UTC) + EXPIRED).isoformat())
    ec2.create_vpc(CidrBlock="10.0.0.0/16", TagSpecifications=[{"ResourceType": "vpc", "Tags": pairs_of(tags)}])
    assert reap(*SURE) == 1
    assert reap.left(mine) == mine
    said = 'test-1: in other regions too; to remove all of it: make reap REGION="us-east-1 eu-west-1"'
    assert said in reap.printed()
    assert reap(*SURE, "--stack", "test-1") == 3
    assert "test-1 has resources in regions that are not looked in: eu-west-1" in reap.refused()
    assert reap(*SURE, "--region", "eu-west-1") == 0
    assert not reap.left(mine)
    assert [one for one in ec2.describe_vpcs()["Vpcs"] if not one["IsDefault"]] == []


def test_a_region_that_cannot_be_asked_is_a_note(reap: Reap) -> None:
    """As where an organisation denies the regions that it does not use."""
    mine, denied = reap.plant("test-1"), fault("AccessDeniedException", 400, protocol="json")
    reap.wire.stand_in = Faulty("resource-groups-tagging-api.GetResources", denied)
    assert reap(*SURE) == 0
    assert not reap.left(mine)
    assert "note: not asked for other parts of these clusters: ap-northeast-1: GetResources" in reap.printed()


def test_remains_without_tags_are_shown_and_removed_when_they_are_named(stranger: Owner, reap: Reap) -> None:
    remains, other = Planter(replace(stranger, environment="test-7")), Planter(stranger)
    for planter in (remains, other):
        PLANTS["log group"](planter)
    both = remains.keys | other.keys
    assert reap(*SURE) == 0
    assert "test-7: no expiry; to remove it: make reap STACK=test-7" in reap.printed()
    assert reap.left(both) == both
    assert reap(*SURE, "--stack", "test-7") == 0
    assert reap.left(both) == other.keys


def test_another_answer_than_the_account_removes_nothing(reap: Reap, answers: list[str]) -> None:
    mine = reap.plant("test-1")
    for typed in ([], ["yes"], ["test-1"]):
        answers += typed
        assert reap() == 3
        assert reap.left(mine) == mine, typed
    answers += [ACCOUNT]
    assert reap() == 0
    assert not reap.left(mine)


def test_wrong_input_is_refused(reap: Reap) -> None:
    reap.plant("test-1")
    reap.wire.operations.clear()
    for arguments, status, message in (
        (["--yes"], 2, f"add ACCOUNT={ACCOUNT}"),
        (["--region", "us-east-9"], 2, "REGION=us-east-9: unknown region"),
        (["--stack", "test-9"], 3, "no test cluster test-9 in this account"),
    ):
        assert reap(*arguments) == status, arguments
        assert message in reap.refused()
    assert reap.wire.changes == []


def test_expired_credentials_are_refused(reap: Reap) -> None:
    mine = reap.plant("test-1")
    reap.wire.stand_in = Faulty("sts.GetCallerIdentity", fault("ExpiredToken", 403, protocol="query"))
    assert reap(*SURE) == 3
    said = reap.refused()
    assert "ExpiredToken" in said
    assert "remedy: sign in" in said
    assert reap.left(mine) == mine


def test_credentials_that_expire_meanwhile_end_it_at_once(reap: Reap, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = reap.plant("test-1", "subnet", "S3 bucket")
    monkeypatch.setattr("infra.lifecycle.commands.reaper.time.sleep", lambda _: pytest.fail("it waited"))
    is_expired = False

    def expired(operation: str) -> Answer | None:
        nonlocal is_expired
        is_expired |= operation == "ec2.DeleteSubnet"
        protocol = {"ec2": "ec2", "iam": "query", "s3": "s3"}.get(operation.partition(".")[0], "json")
        return fault("RequestExpired", 400, protocol=protocol) if is_expired else None

    reap.wire.stand_in = expired
    assert reap(*SURE) == 1
    printed = reap.printed()
    assert "not removed; run it again" in printed
    assert "RequestExpired" in printed
    assert reap.left(mine) == mine


def test_nothing_is_removed_where_a_kind_could_not_be_listed(reap: Reap) -> None:
    mine = reap.plant("test-1")
    reap.wire.stand_in = Faulty("eks.ListClusters", fault("AccessDeniedException", 403, protocol="json"))
    assert reap(*SURE) == 3
    said = reap.capsys.readouterr()
    assert "not audited: EKS cluster in us-east-1: ListClusters: AccessDeniedException: injected" in said.out
    assert "nothing is removed, because some kinds could not be listed" in said.err
    assert reap.left(mine) == mine


def test_what_remains_is_named_and_fails(reap: Reap) -> None:
    reap.plant("test-1")
    reap.wire.stand_in = Faulty("ec2.DeleteVpc", fault("UnauthorizedOperation", 403))
    assert reap(*SURE) == 1
    printed = reap.printed()
    assert "test-1: 1 not removed; run it again\n  VPC vpc-" in printed
    assert "DeleteVpc: UnauthorizedOperation: injected" in printed


def test_the_json_result_has_every_stack_and_progress_goes_to_stderr(reap: Reap) -> None:
    reap.plant("test-1")
    reap.plant("test-2", expires=LIVE)
    assert reap(*SURE, "--json") == 0
    said = reap.capsys.readouterr()
    found: Mapping[str, Any] = json.loads(said.out)
    assert [(one["environment"], one["standing"], one["chosen"]) for one in found["stacks"]] == [
        ("test-1", "expired", True),
        ("test-2", "live", False),
    ]
    assert [one["kind"] for one in found["stacks"][0]["resources"]] == ["VPC"]
    assert (found["account"], found["regions"], found["not_audited"]) == (ACCOUNT, [REGION], [])
    assert said.err.startswith("test-1: deleted VPC vpc-")


def test_the_policy_is_printed_without_an_account_and_one_without_test_clusters_is_nothing_to_do(reap: Reap) -> None:
    assert reap("--policy") == 0
    assert json.loads(reap.printed()) == reaper_policy()
    assert reap.wire.operations == []
    assert reap(*SURE) == 0
    assert reap.printed() == "no test clusters in account 123456789012, us-east-1\n"
