"""Removal of a stack: in which order, again after refusals and interruptions, and what is left alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import pytest

from infra.lifecycle.leftovers.found import Key
from infra.lifecycle.leftovers.inventory import KINDS, take
from infra.lifecycle.leftovers.ownership import owned
from infra.lifecycle.leftovers.removal import PAUSE_SECONDS, Pace, Removal
from infra.spec.errors import RefusedError
from tests.infra.lifecycle.leftovers.conftest import NOW, everything
from tests.infra.lifecycle.leftovers.planter import REGION, Owner, Planter
from tests.infra.lifecycle.leftovers.plants import PLANTS, database, plant_stack, subnet
from tests.infra.lifecycle.leftovers.wire import Answer, Before, Faulty, Wire, fault

LIMIT = 60.0
NUMBERS = (40, *(pytest.param(number, marks=pytest.mark.extended) for number in (5, 20, 50)))
"""Requests that change something, of a whole removal, by number."""
WHOLES = ("EKS cluster", "EC2 instance", "EFS file system", "VPC", "KMS key", "IAM role")


@dataclass
class Reaper:
    """Removes our stack, of which `mine` was planted, with a clock that only waiting moves."""

    owner: Owner
    wire: Wire
    waited: float = 0.0
    mine: set[Key] = field(default_factory=set)

    def plant(self, *kinds: str) -> Planter:
        planter = Planter(self.owner)
        for kind in kinds:
            PLANTS[kind](planter)
        self.mine = planter.keys
        return planter

    def removal(self, now: datetime = NOW) -> Removal:
        """The removal, of which it is known what others are a part of."""
        wholes, _ = take(self.owner.clients, [REGION], [KINDS[name] for name in WHOLES])
        return Removal(
            stack=self.owner.stack,
            clients=self.owner.clients,
            regions=(REGION,),
            pace=Pace(limit=LIMIT, wait=self._wait, clock=lambda: self.waited),
            now=lambda: now,
            say=lambda _: None,
            known=frozenset(owned(wholes, self.owner.stack)),
        )

    def run(self) -> tuple[str, ...]:
        """Remove the stack; returns what remains, as printed."""
        return tuple(map(str, self.removal().run()))

    def left(self) -> set[Key]:
        return everything(self.owner.clients) & self.mine

    def _wait(self, seconds: float) -> None:
        self.waited += seconds


@pytest.fixture
def reaper(ours: Owner, wire: Wire) -> Reaper:
    return Reaper(ours, wire)


@pytest.fixture
def whole(reaper: Reaper) -> Reaper:
    reaper.mine = plant_stack(reaper.owner).keys
    return reaper


def test_a_whole_stack_goes_in_one_round_and_its_neighbours_stay(whole: Reaper, rival: Owner, stranger: Owner) -> None:
    others = plant_stack(rival).keys | plant_stack(stranger).keys
    before, _ = take(whole.owner.clients, [REGION])
    # Moto makes interfaces for gateways, and a group for a load balancer.
    with_parts = set(owned(before, whole.owner.stack))
    assert whole.mine <= with_parts
    assert not others & with_parts
    assert whole.run() == ()
    assert everything(whole.owner.clients) == {one.key for one in before} - with_parts
    assert whole.waited == 0, "nothing was refused because of something that was still there"


@pytest.mark.parametrize("number", NUMBERS)
def test_an_interrupted_removal_is_continued_by_the_next(number: int, whole: Reaper) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    whole.wire.stand_in = Before(number, interrupt)
    with pytest.raises(KeyboardInterrupt):
        whole.run()
    assert whole.left(), "something is left to continue with"
    assert whole.run() == ()
    assert not whole.left()


@pytest.mark.parametrize("number", NUMBERS)
def test_two_removals_at_once_both_end_well(number: int, whole: Reaper) -> None:
    second = list[tuple[str, ...]]()
    whole.wire.stand_in = Before(number, lambda: second.append(whole.run()))
    assert whole.run() == ()
    assert second == [()]
    assert not whole.left()


@pytest.mark.extended
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
def test_use_is_tried_again(kind: str, operation: str, error: Answer, times: int, rounds: int, reaper: Reaper) -> None:
    reaper.plant(kind)
    reaper.wire.stand_in = Faulty(operation, error, times=times)
    assert reaper.run() == ()
    assert not reaper.left()
    assert reaper.waited == rounds * PAUSE_SECONDS


def test_an_interface_that_is_unused_only_later_goes_too(reaper: Reaper) -> None:
    """As of an instance whose end EC2 reports before that of its interfaces."""
    planter = reaper.plant("security group", "subnet")
    in_use = Faulty("ec2.DeleteSecurityGroup", fault("DependencyViolation", 400), times=2)

    def detached(operation: str) -> Answer | None:
        answer = in_use(operation)
        if answer is not None and in_use.times == 0:
            PLANTS["network interface"](planter)
        return answer

    reaper.wire.stand_in = detached
    assert reaper.run() == ()
    assert "network interface" in {key.kind for key in planter.keys}
    assert not reaper.left()


@pytest.mark.parametrize(
    ("kind", "operation", "error"),
    [
        ("VPC", "ec2.DeleteVpc", fault("RequestLimitExceeded", 503)),
        ("VPC", "ec2.DescribeVpcs", fault("InternalError", 500)),
        ("IAM role", "iam.ListRoles", fault("Throttling", 400, protocol="query")),
        ("KMS key", "kms.ScheduleKeyDeletion", fault("ThrottlingException", 400, protocol="json")),
    ],
)
def test_a_throttled_or_failing_service_is_retried(kind: str, operation: str, error: Answer, reaper: Reaper) -> None:
    reaper.plant(kind)
    reaper.wire.stand_in = refusal = Faulty(operation, error, times=3)
    assert reaper.run() == ()
    assert not reaper.left()
    assert (reaper.waited, refusal.times) == (0, 0), "botocore retried"


def test_what_never_comes_free_is_given_up_and_named(reaper: Reaper) -> None:
    reaper.plant("subnet", "S3 bucket")
    reaper.wire.stand_in = Faulty("ec2.DeleteSubnet", fault("DependencyViolation", 400))
    (left,) = reaper.run()
    assert left.startswith("subnet subnet-")
    assert left.endswith("DeleteSubnet: DependencyViolation: injected")
    assert reaper.waited == LIMIT
    assert {key.kind for key in reaper.left()} == {"subnet", "VPC"}, "the bucket needs no network"
    reaper.wire.stand_in = lambda _: None
    assert reaper.run() == ()
    assert not reaper.left()


def test_somebody_elses_instance_in_the_network_is_named(reaper: Reaper) -> None:
    place = subnet(reaper.plant())
    one = {"ImageId": "ami-0", "InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1}
    made = reaper.owner.clients.of("ec2", REGION).run_instances(SubnetId=place, **one)
    (theirs,) = (one["InstanceId"] for one in made["Instances"])
    reaper.wire.stand_in = Faulty("ec2.DeleteSubnet", fault("DependencyViolation", 400))
    kept, interface = reaper.run()
    assert kept.startswith(f"subnet {place}: DeleteSubnet: DependencyViolation")
    assert interface.startswith("network interface eni-")
    assert interface.endswith(f": {theirs} uses it, and is not the stack's")


def test_a_node_group_that_stays_keeps_cluster_network_and_stores(reaper: Reaper) -> None:
    reaper.plant("EKS node group", "S3 bucket", "IAM role")
    reaper.wire.stand_in = Faulty("eks.DeleteNodegroup", fault("AccessDeniedException", 403, protocol="json"))
    (left,) = reaper.run()
    assert "EKS node group rtp-test-1:system: DeleteNodegroup: AccessDeniedException" in left
    assert reaper.left() == reaper.mine
    assert reaper.waited == 0, "a refusal is final"


def test_a_kind_that_cannot_be_listed_counts_as_left(reaper: Reaper) -> None:
    reaper.plant("EKS cluster")
    reaper.wire.stand_in = Faulty("eks.ListClusters", fault("AccessDeniedException", 403, protocol="json"))
    (left,) = reaper.run()
    assert left.startswith("EKS node group in us-east-1: ListClusters: AccessDeniedException")
    reaper.wire.stand_in = lambda _: None
    assert reaper.left() == reaper.mine


def test_a_stack_that_is_prolonged_meanwhile_is_left_alone(reaper: Reaper) -> None:
    reaper.plant("VPC")
    removal = reaper.removal(datetime.fromisoformat("2029-12-31T00:00:00+00:00"))
    reaper.wire.operations.clear()
    with pytest.raises(RefusedError, match=r"VPC vpc-.* now expires at 2029-12-31T23:59:59"):
        removal.run()
    assert reaper.wire.changes == []
    assert reaper.left() == reaper.mine


def test_deletion_protection_is_taken_off(reaper: Reaper) -> None:
    name = database(reaper.plant())
    reaper.owner.clients.of("rds", REGION).modify_db_instance(DBInstanceIdentifier=name, DeletionProtection=True)
    assert reaper.run() == ()
    assert not reaper.left()
