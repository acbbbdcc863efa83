"""What is removed, or closed to us, while an account is listed hides nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.inventory import KINDS, Inventory, take
from infra.lifecycle.leftovers.ownership import owned
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, Planter
from tests.infra.lifecycle.leftovers.plants import PLANTS, cluster, key, subnet
from tests.infra.lifecycle.leftovers.wire import Answer, Faulty, Wire, fault

CLOSED = "arn:aws:iam::1:role/x is not authorized to perform: kms:DescribeKey because no {}-based policy allows it"

Listing = Callable[[str], Inventory]


@pytest.fixture
def listing(clients: Clients) -> Listing:
    return lambda kind: take(clients, [REGION], [KINDS[kind]])


def _gone(operation: str, code: str, status: int, protocol: str) -> Faulty:
    return Faulty(operation, fault(code, status, protocol=protocol), times=1)


@pytest.mark.parametrize(
    ("kind", "gone"),
    [
        ("EKS node group", ("eks.DescribeNodegroup", "ResourceNotFoundException", 404, "json")),
        ("recovery point", ("backup.ListTags", "ResourceNotFoundException", 404, "json")),
        ("IAM role", ("iam.ListRoleTags", "NoSuchEntity", 404, "query")),
    ],
)
def test_of_two_the_other_is_found_when_one_is_removed_meanwhile(
    kind: str, gone: tuple[str, str, int, str], ours: Owner, rival: Owner, wire: Wire, listing: Listing
) -> None:
    planters = [Planter(ours), Planter(rival)]
    for planter in planters:
        PLANTS[kind](planter)
    if kind == "EKS node group":
        where = {"clusterName": cluster(planters[0]), "nodegroupName": "t4", "subnets": [subnet(planters[0])]}
        planters[0].client("eks").create_nodegroup(**where, nodeRole=f"arn:aws:iam::{ACCOUNT}:role/node")
    before, _ = listing(kind)
    wire.stand_in = _gone(*gone)
    found, unknown = listing(kind)
    assert unknown == ()
    assert len(found) == len(before) - 1


@pytest.mark.parametrize("kind", ["load balancer", "classic load balancer", "target group"])
def test_tags_are_asked_for_one_by_one(kind: str, ours: Owner, rival: Owner, wire: Wire, listing: Listing) -> None:
    for owner in (ours, rival):
        PLANTS[kind](Planter(owner))
    wire.operations.clear()
    listing(kind)
    operation = next(one for one in wire.operations if one.endswith(".DescribeTags"))
    code = "TargetGroupNotFound" if kind == "target group" else "LoadBalancerNotFound"
    wire.stand_in = gone = _gone(operation, code, 400, "query")
    found, unknown = listing(kind)
    assert (gone.times, len(found), unknown) == (0, 2, ())


def _closed(by: str) -> Answer:
    return 400, {}, json.dumps({"__type": "AccessDeniedException", "message": CLOSED.format(by)}).encode()


def test_a_key_that_is_closed_to_us_is_of_others(ours: Owner, stranger: Owner, wire: Wire, listing: Listing) -> None:
    for owner in (ours, stranger):
        assert key(Planter(owner))
    wire.stand_in = Faulty("kms.DescribeKey", _closed("resource"), times=1)
    found, unknown = listing("KMS key")
    assert (len(found), unknown) == (1, ())
    wire.stand_in = Faulty("kms.DescribeKey", _closed("identity"))
    found, (denied,) = listing("KMS key")
    assert (found, denied.kind) == ((), "KMS key")


def test_a_bucket_that_hides_its_tags_has_its_name(ours: Owner, stranger: Owner, wire: Wire, listing: Listing) -> None:
    planters = [Planter(ours), Planter(stranger)]
    for planter in planters:
        PLANTS["S3 bucket"](planter)
    message = "is not authorized to perform: s3:GetBucketTagging with an explicit deny in a resource-based policy"
    body = f"<Error><Code>AccessDenied</Code><Message>{message}</Message></Error>".encode()
    wire.stand_in = Faulty("s3.GetBucketTagging", (403, {}, body))
    found, unknown = listing("S3 bucket")
    assert unknown == ()
    assert len(found) == 2
    assert set(owned(found, ours.stack)) == planters[0].keys
