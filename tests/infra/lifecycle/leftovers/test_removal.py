"""A stack's resources go in an order that AWS accepts, whatever interrupts, throttles or refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pytest

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.found import Key
from infra.lifecycle.leftovers.inventory import KINDS, take
from infra.lifecycle.leftovers.ownership import owned
from infra.lifecycle.leftovers.removal import PAUSE_SECONDS, Pace, Removal
from infra.spec.errors import RefusedError
from tests.infra.lifecycle.leftovers.conftest import NOW
from tests.infra.lifecycle.leftovers.planter import REGION, Owner, Planter
from tests.infra.lifecycle.leftovers.plants import PLANTS, plant_stack
from tests.infra.lifecycle.leftovers.wire import Answer, Before, Faulty, Wire, fault

LIMIT = 60.0
NUMBERS = (40, *(pytest.param(number, marks=pytest.mark.long) for number in (5, 20, 60)))
"""Requests that change something, of a whole removal, by number."""
WHOLES = ("EKS cluster", "EC2 instance", "EFS file system", "VPC", "KMS key", "IAM role")


@dataclass
class Clock:
    """A clock that only waiting moves."""

    now: float = 0.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


Reap = Callable[[], tuple[str, ...]]


@pytest.fixture
def reap(ours: Owner, clock: Clock) -> Reap:
    """Removes our stack; returns what remains, as printed."""

    def run() -> tuple[str, ...]:
        return tuple(map(str, removal_of(ours, clock, now=NOW).run()))

    return run


def removal_of(owner: Owner, clock: Clock, *, now: datetime) -> Removal:
    """The removal of a stack, of which it is known what others are a part of."""
    wholes, _ = take(owner.clients, [REGION], [KINDS[name] for name in WHOLES])
    return Removal(
        stack=owner.stack,
        clients=owner.clients,
        regions=(REGION,),
        pace=Pace(limit=LIMIT, wait=clock.wait, clock=lambda: clock.now),
        now=lambda: now,
        say=lambda _: None,
        known=frozenset(owned(wholes, owner.stack)),
    )


def everything(clients: Clients) -> set[Key]:
    """What the account has."""
    found, unknown = take(clients, [REGION])
    assert unknown == ()
    return {one.key for one in found}


def plant(owner: Owner, *kinds: str) -> set[Key]:
    """Plant some kinds; returns everything planted."""
    planter = Planter(owner)
    for kind in kinds:
        PLANTS[kind](planter)
    return planter.keys


def test_a_whole_stack_goes_in_one_round_and_its_neighbours_stay(
    clients: Clients, ours: Owner, rival: Owner, stranger: Owner, clock: Clock, reap: Reap
) -> None:
    mine = plant_stack(ours).keys
    others = plant_stack(rival).keys | plant_stack(stranger).keys
    before, _ = take(clients, [REGION])
    with_parts = set(owned(before, ours.stack))  # moto makes interfaces for gateways, and a group for a load balancer
    assert mine <= with_parts
    assert not others & with_parts
    assert reap() == ()
    assert everything(clients) == {one.key for one in before} - with_parts
    assert clock.now == 0, "nothing was refused because of something that was still there"


@pytest.mark.parametrize("number", NUMBERS)
def test_an_interrupted_removal_is_continued_by_the_next(
    number: int, clients: Clients, ours: Owner, wire: Wire, reap: Reap
) -> None:
    mine = plant_stack(ours).keys

    def interrupt() -> None:
        raise KeyboardInterrupt

    wire.stand_in = Before(number, interrupt)
    with pytest.raises(KeyboardInterrupt):
        reap()
    assert everything(clients) & mine, "something is left to continue with"
    assert reap() == ()
    assert not everything(clients) & mine


@pytest.mark.parametrize("number", NUMBERS)
def test_two_removals_at_once_both_end_well(
    number: int, clients: Clients, ours: Owner, wire: Wire, reap: Reap, clock: Clock
) -> None:
    mine, second = plant_stack(ours).keys, list[tuple[str, ...]]()
    wire.stand_in = Before(number, lambda: second.append(reap()))
    assert reap() == ()
    assert second == [()]
    assert not everything(clients) & mine


@pytest.mark.parametrize(
    ("kind", "operation", "error", "times", "rounds"),
    [
        ("subnet", "ec2.DeleteSubnet", fault("DependencyViolation", 400), 2, 2),
        ("security group", "ec2.DeleteSecurityGroup", fault("DependencyViolation", 400), 3, 2),
        ("IAM role", "iam.DeleteRole", fault("DeleteConflict", 409, protocol="query"), 1, 1),
        ("EKS cluster", "eks.DeleteCluster", fault("ResourceInUseException", 409, protocol="json"), 1, 1),
        ("EBS volume", "ec2.DeleteVolume", fault("VolumeInUse", 400), 1, 1),
        # Its user has not let go of it yet.
        ("elastic IP address", "ec2.ReleaseAddress", fault("AuthFailure", 401), 1, 1),
    ],
)
def test_what_is_in_use_is_tried_again(
    kind: str, operation: str, error: Answer, times: int, rounds: int,
    clients: Clients, ours: Owner, wire: Wire, clock: Clock, reap: Reap,
) -> None:  # fmt: skip
    mine = plant(ours, kind)
    wire.stand_in = Faulty(operation, error, times=times)
    assert reap() == ()
    assert not everything(clients) & mine
    assert clock.now == rounds * PAUSE_SECONDS


def test_an_interface_that_is_unused_only_later_goes_too(clients: Clients, ours: Owner, wire: Wire, reap: Reap) -> None:
    """As of an instance whose end EC2 reports before that of its interfaces."""
    planter = Planter(ours)
    PLANTS["security group"](planter)
    assert planter.subnet
    in_use = Faulty("ec2.DeleteSecurityGroup", fault("DependencyViolation", 400), times=2)

    def detached(operation: str) -> Answer | None:
        answer = in_use(operation)
        if answer is not None and in_use.times == 0:
            PLANTS["network interface"](planter)
        return answer

    wire.stand_in = detached
    assert reap() == ()
    assert "network interface" in {key.kind for key in planter.keys}
    assert not everything(clients) & planter.keys


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        ("VPC", Faulty("ec2.DeleteVpc", fault("RequestLimitExceeded", 503), times=3)),
        ("VPC", Faulty("ec2.DescribeVpcs", fault("InternalError", 500), times=3)),
        ("IAM role", Faulty("iam.ListRoles", fault("Throttling", 400, protocol="query"), times=3)),
        ("KMS key", Faulty("kms.ScheduleKeyDeletion", fault("ThrottlingException", 400, protocol="json"), times=3)),
    ],
)
def test_a_throttled_or_failing_service_is_asked_again_at_once(
    kind: str, refusal: Faulty, clients: Clients, ours: Owner, wire: Wire, clock: Clock, reap: Reap
) -> None:
    mine = plant(ours, kind)
    wire.stand_in = refusal
    assert reap() == ()
    assert not everything(clients) & mine
    assert clock.now == 0, "botocore retried"
    assert refusal.times == 0


def test_what_never_comes_free_is_given_up_and_named(
    clients: Clients, ours: Owner, wire: Wire, clock: Clock, reap: Reap
) -> None:
    mine = plant(ours, "subnet", "S3 bucket")
    wire.stand_in = Faulty("ec2.DeleteSubnet", fault("DependencyViolation", 400))
    (left,) = reap()
    assert left.startswith("subnet subnet-")
    assert left.endswith("DeleteSubnet: DependencyViolation: injected")
    assert clock.now == LIMIT
    assert {key.kind for key in everything(clients) & mine} == {"subnet", "VPC"}, "the bucket needs no network"
    wire.stand_in = lambda _: None
    assert reap() == ()
    assert not everything(clients) & mine


def test_somebody_elses_instance_in_the_network_is_named(clients: Clients, ours: Owner, wire: Wire, reap: Reap) -> None:
    planter = Planter(ours)
    made = clients.of("ec2", REGION).run_instances(
        ImageId="ami-0", InstanceType="t3.micro", MinCount=1, MaxCount=1, SubnetId=planter.subnet
    )
    (theirs,) = (one["InstanceId"] for one in made["Instances"])
    wire.stand_in = Faulty("ec2.DeleteSubnet", fault("DependencyViolation", 400))
    subnet, interface = reap()
    assert subnet.startswith(f"subnet {planter.subnet}: DeleteSubnet: DependencyViolation")
    assert interface.startswith("network interface eni-")
    assert interface.endswith(f": {theirs} uses it, and is not the stack's")


def test_a_node_group_that_stays_keeps_cluster_network_and_stores(
    clients: Clients, ours: Owner, wire: Wire, clock: Clock, reap: Reap
) -> None:
    mine = plant(ours, "EKS node group", "S3 bucket", "IAM role")
    wire.stand_in = Faulty("eks.DeleteNodegroup", fault("AccessDeniedException", 403, protocol="json"))
    (left,) = reap()
    assert "EKS node group rtp-test-1:system: DeleteNodegroup: AccessDeniedException" in left
    assert everything(clients) >= mine
    assert clock.now == 0, "a refusal is final"


def test_a_kind_that_cannot_be_listed_counts_as_left(clients: Clients, ours: Owner, wire: Wire, reap: Reap) -> None:
    mine = plant(ours, "EKS cluster")
    wire.stand_in = Faulty("eks.ListClusters", fault("AccessDeniedException", 403, protocol="json"))
    (left,) = reap()
    assert left.startswith("EKS node group in us-east-1: ListClusters: AccessDeniedException")
    wire.stand_in = lambda _: None
    assert everything(clients) >= mine


def test_a_stack_that_is_prolonged_meanwhile_is_left_alone(clients: Clients, ours: Owner, wire: Wire) -> None:
    mine = plant(ours, "VPC")
    removal = removal_of(ours, Clock(), now=datetime.fromisoformat("2029-12-31T00:00:00+00:00"))
    wire.operations.clear()
    with pytest.raises(RefusedError, match=r"VPC vpc-.* now expires at 2029-12-31T23:59:59"):
        removal.run()
    assert wire.changes == []
    assert everything(clients) >= mine


def test_deletion_protection_is_taken_off(clients: Clients, ours: Owner, wire: Wire, reap: Reap) -> None:
    mine = plant(ours, "RDS instance")
    clients.of("rds", REGION).modify_db_instance(DBInstanceIdentifier="rtp-test-1-mlflow", DeletionProtection=True)
    assert reap() == ()
    assert not everything(clients) & mine
