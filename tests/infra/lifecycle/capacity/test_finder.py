"""The readers of AWS: against moto, and with published answers where moto has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import UnauthorizedSSOTokenError

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.capacity.finder import Findings, find
from infra.lifecycle.capacity.need import Need
from infra.lifecycle.capacity.offers import BlockOffering, NotKnown, OnDemand, Reserved, Spot
from infra.lifecycle.capacity.permissions import ACTIONS
from infra.lifecycle.capacity.sources.asking import ask
from infra.spec.catalog import load_catalog
from infra.spec.errors import RefusedError
from tests.infra.lifecycle.capacity.published import ACCOUNT, Published, Refused, Tree, published
from tests.infra.lifecycle.capacity.samples import HOUR, NOW, OFFERING_ID, answers, described, need, place, sold

ALL = {
    "GetServiceQuota": "servicequotas:GetServiceQuota",
    "DescribeInstances": "ec2:DescribeInstances",
    "DescribeCapacityReservations": "ec2:DescribeCapacityReservations",
    "DescribeCapacityBlockOfferings": "ec2:DescribeCapacityBlockOfferings",
    "GetSpotPlacementScores": "ec2:GetSpotPlacementScores",
    "DescribeSpotPriceHistory": "ec2:DescribeSpotPriceHistory",
    "DescribeInstanceTypeOfferings": "ec2:DescribeInstanceTypeOfferings",
    "DescribeAvailabilityZones": "ec2:DescribeAvailabilityZones",
}
"""Every operation of the finder, with its IAM action."""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    with published(monkeypatch, answers()) as found:
        yield found


def account() -> Clients:
    return Clients(boto3.Session(region_name="us-east-1"), account=ACCOUNT)


def found(wanted: Need | None = None, *regions: str) -> Findings:
    """What the finder finds for a need of the sample."""
    return find(account(), wanted or need(), regions or ("us-east-1",), catalog=load_catalog(), place=place())


def offers(findings: Findings, kind: type) -> list[Any]:
    return [one.offer for one in findings.offers if isinstance(one.offer, kind)]


def whys(findings: Findings) -> dict[str, str]:
    return {one.kind: one.why for one in findings.absent}


def reserving(aws: Published, *reservations: Tree) -> None:
    aws.answers["DescribeCapacityReservations"] = {"CapacityReservations": list(reservations)}


def running(aws: Published, *instances: Tree) -> None:
    aws.answers["DescribeInstances"] = {"Reservations": [{"Instances": list(instances)}]}


def test_every_source_is_asked_and_the_block_for_sale_is_the_most_certain(aws: Published) -> None:
    findings = found()
    assert {name for name, _, _ in aws.requests} == set(ALL)
    assert {*ACTIONS} == {*ALL.values(), "servicequotas:GetAWSDefaultServiceQuota"}
    assert findings.offers[0].offer == BlockOffering(
        region="us-east-1",
        id=OFFERING_ID,
        zone="us-east-1b",
        blocks=1,
        instances=8,
        starts=sold()["StartDate"],
        ends=sold()["EndDate"],
        fee=12288.0,
        currency="USD",
    )
    assert whys(findings).keys() == {"reservation", "future_reservation"}
    scores = {one.zone: one.score for one in offers(findings, Spot)}
    assert scores["us-east-1b"] == 9
    assert isinstance(scores["us-east-1a"], NotKnown)


def test_a_block_is_asked_for_from_the_day_on_with_the_durations_that_hold_the_hours(aws: Published) -> None:
    later = NOW + 96 * HOUR
    found(need(nodes=8, hours=24, starts=later))
    asked = aws.asked("DescribeCapacityBlockOfferings")
    assert [one["CapacityDurationHours"] for one in asked] == [24, 48]
    assert {one["StartDateRange"] for one in asked} == {later}
    assert {(one["InstanceType"], one["InstanceCount"]) for one in asked} == {("p5.48xlarge", 8)}


def test_blocks_of_every_page_are_found_once(aws: Published) -> None:
    def pages(parameters: Tree, _: str) -> Tree:
        if parameters.get("NextToken"):
            return {"CapacityBlockOfferings": [sold(CapacityBlockOfferingId="cbr-2")]}
        return {"CapacityBlockOfferings": [sold()], "NextToken": "more"}

    aws.answers["DescribeCapacityBlockOfferings"] = pages
    assert {one.id for one in offers(found(), BlockOffering)} == {OFFERING_ID, "cbr-2"}


def test_blocks_that_are_sold_together_are_one_offer_that_no_group_can_use(aws: Published) -> None:
    segments = [
        {"InstanceType": "p5.48xlarge", "AvailabilityZone": zone, "InstanceCount": 8}
        for zone in ("us-east-1b", "us-east-1c")
    ]
    several = sold(CapacityBlockOfferingSegments=segments)
    del several["AvailabilityZone"]
    aws.answers["DescribeCapacityBlockOfferings"] = {"CapacityBlockOfferings": [several]}
    (one,) = [one for one in found().offers if isinstance(one.offer, BlockOffering)]
    assert one.zones == ("us-east-1b",)
    assert "it is 2 blocks, a group uses one" in one.shortfalls


def test_on_demand_counts_what_runs_and_what_is_reserved_but_unused(aws: Published) -> None:
    aws.answers["GetServiceQuota"] = {"Quota": {"QuotaName": "Running On-Demand P instances", "Value": 1000.0}}
    ours = described(AvailableInstanceCount=1)
    foreign = described(CapacityReservationId="cr-0000000000000000f", OwnerId="111122223333")
    other = described(CapacityReservationId="cr-0000000000000000e", InstanceType="g6.12xlarge")
    reserving(aws, ours, foreign, other)
    running(aws, _instance(), _instance("spot"), _instance("capacity-block"))
    (offer,) = offers(found(), OnDemand)
    assert (offer.quota.used, offer.quota.left) == (192 + 96, 1000 - 288)
    (asked, *_) = aws.asked("DescribeInstances")
    assert {"Name": "instance-type", "Values": ["p*"]} in asked["Filters"]


def _instance(lifecycle: str | None = None, *, of: str = "p4d.24xlarge") -> Tree:
    return {"InstanceType": of} if lifecycle is None else {"InstanceType": of, "InstanceLifecycle": lifecycle}


def test_an_unknown_type_has_the_vcpus_of_ec2_and_a_quota_without_a_value_the_default(aws: Published) -> None:
    running(aws, {"InstanceType": "p2.xlarge", "CpuOptions": {"CoreCount": 2, "ThreadsPerCore": 2}})
    aws.answers["GetServiceQuota"] = Refused("NoSuchResourceException")
    aws.answers["GetAWSDefaultServiceQuota"] = {"Quota": {"QuotaName": "Running On-Demand P instances", "Value": 64.0}}
    (offer,) = offers(found(), OnDemand)
    assert (offer.quota.used, offer.quota.limit) == (4, 64)


def test_spot_counts_against_the_quota_of_its_own_generation(aws: Published) -> None:
    running(aws, _instance("spot", of="p5.48xlarge"), _instance("spot"))
    for type_, code, patterns in (
        ("p5.48xlarge", "L-C4BD4855", ["p5*"]),
        ("p4d.24xlarge", "L-7212CCBC", ["p2*", "p3*", "p4*"]),
    ):
        (offer, *_) = offers(found(need(changes={"gpu_groups.1.instance_type": type_})), Spot)
        assert offer.quota.code == code
        assert {"Name": "instance-type", "Values": patterns} in aws.asked("DescribeInstances")[-1]["Filters"]
    (offer, *_) = offers(found(need(changes={"gpu_groups.1.instance_type": "p6-b200.48xlarge"})), Spot)
    assert str(offer.quota) == "not known: AWS lists no spot quota for p6-b200"


def test_the_spot_price_is_the_newest_and_its_range_that_of_the_week(aws: Published) -> None:
    points = [(NOW - 30 * HOUR, "50.0"), (NOW - 2 * HOUR, "41.5"), (NOW - 20 * HOUR, "38.0")]
    aws.answers["DescribeSpotPriceHistory"] = {
        "SpotPriceHistory": [
            {"AvailabilityZone": "us-east-1b", "InstanceType": "p5.48xlarge", "SpotPrice": price, "Timestamp": at}
            for at, price in points
        ]
    }
    prices = {one.zone: one.price for one in offers(found(), Spot)}
    assert (prices["us-east-1b"].now, prices["us-east-1b"].lowest, prices["us-east-1b"].highest) == (41.5, 38.0, 50.0)
    assert isinstance(prices["us-east-1a"], NotKnown)


def test_a_group_with_efa_is_scored_by_its_type_alone_and_another_with_its_kin(aws: Published) -> None:
    found()
    found(need("t4", changes={"gpu_groups.0": {"name": "t4", "instance_type": "g6.xlarge", "max_size": 4}}))
    asked = [one["InstanceTypes"] for one in aws.asked("GetSpotPlacementScores")]
    assert asked == [["p5.48xlarge"], ["g6.xlarge", "g6.2xlarge"]]


def test_only_reservations_of_the_type_that_have_not_ended_are_offered(aws: Published) -> None:
    block = {"ReservationType": "capacity-block", "EndDateType": "limited", "EndDate": NOW + 72 * HOUR}
    reserving(
        aws,
        described(),
        described(CapacityReservationId="cr-0000000000000000e", State="expired"),
        described(CapacityReservationId="cr-0000000000000000f", InstanceType="p4d.24xlarge"),
        described(CapacityReservationId="cr-0000000000000000d", State="scheduled", **block),
    )
    kinds = {one.id: one.kind for one in offers(found(), Reserved)}
    assert kinds == {described()["CapacityReservationId"]: "reservation", "cr-0000000000000000d": "capacity_block"}


def test_a_reservation_is_read_with_what_a_launch_into_it_needs(aws: Published) -> None:
    group = f"arn:aws:ec2:us-east-1:{ACCOUNT}:placement-group/ours"
    shared = {"OwnerId": "111122223333", "InstanceMatchCriteria": "open", "PlacementGroupArn": group}
    outpost = "arn:aws:outposts:us-east-1:1:outpost/op-0123456789abcdef0"
    misfits: dict[str, Tree] = {
        "it is of dedicated tenancy, nodes are not": {"Tenancy": "dedicated"},
        "it is interruptible: its owner may take the instances back": {"Interruptible": True},
        "it is on an Outpost": {"OutpostArn": outpost},
        "it is for Windows, nodes are Linux/UNIX": {"InstancePlatform": "Windows"},
    }
    ids = {f"cr-0000000000000000{number}": said for number, said in enumerate(misfits)}
    reserving(aws, *(described(CapacityReservationId=id_, **shared, **misfits[said]) for id_, said in ids.items()))
    for one in offers(found(), Reserved):
        assert (one.owner, one.is_open, one.placement_group) == ("111122223333", True, "ours")
        assert ids[one.id] in one.misfit
        del ids[one.id]
    assert ids == {}


def test_what_is_denied_is_not_known_and_names_the_action(aws: Published) -> None:
    for operation, action in ALL.items():
        before = dict(aws.answers)
        code = "AccessDeniedException" if operation == "GetServiceQuota" else "UnauthorizedOperation"
        aws.answers[operation] = Refused(code)
        findings = found()
        said = [*(one.why for one in findings.absent), *(note for one in findings.offers for note in one.notes)]
        assert any(f"not known: access denied, needs {action}" in one for one in said), operation
        aws.answers = before
    aws.answers["GetServiceQuota"] = Refused("NoSuchResourceException")
    aws.answers["GetAWSDefaultServiceQuota"] = Refused("AccessDeniedException")
    (offer,) = offers(found(), OnDemand)
    assert str(offer.quota) == "not known: access denied, needs servicequotas:GetAWSDefaultServiceQuota"


def test_with_one_request_denied_every_other_kind_is_still_offered(aws: Published) -> None:
    reserving(aws, described())
    everything = {one.offer.kind for one in found().offers}
    assert everything == {"reservation", "block_offering", "on_demand", "spot"}
    for operation, kind in (
        ("DescribeCapacityReservations", "reservation"),
        ("DescribeCapacityBlockOfferings", "block_offering"),
    ):
        aws.answers[operation], answered = Refused("UnauthorizedOperation"), aws.answers[operation]
        assert {one.offer.kind for one in found().offers} == everything - {kind}
        aws.answers[operation] = answered


def test_a_region_that_is_not_enabled_leaves_the_others(aws: Published) -> None:
    def only_at_home(answer: Tree, code: str) -> Callable[[Tree, str], Tree | Refused]:
        return lambda _, region: Refused(code) if region == "us-west-2" else answer

    aws.answers["DescribeCapacityReservations"] = only_at_home({"CapacityReservations": []}, "InvalidClientTokenId")
    aws.answers["DescribeCapacityBlockOfferings"] = only_at_home({"CapacityBlockOfferings": [sold()]}, "AuthFailure")
    findings = found(None, "us-east-1", "us-west-2")
    assert [one.offer.region for one in findings.offers if isinstance(one.offer, BlockOffering)] == ["us-east-1"]
    why = {one.kind: one.why for one in findings.absent if one.region == "us-west-2"}
    assert "(InvalidClientTokenId); it may not be enabled" in why["reservation"]
    assert "(AuthFailure); it may not be enabled" in why["block_offering"]


def test_what_aws_refuses_is_said(aws: Published) -> None:
    for refusal, said in (
        (Refused("RequestLimitExceeded"), "AWS throttles ec2:DescribeCapacityBlockOfferings (RequestLimitExceeded)"),
        (Refused("InvalidParameterValue", "CapacityDurationHours"), "InvalidParameterValue: CapacityDurationHours"),
    ):
        aws.answers["DescribeCapacityBlockOfferings"] = refusal
        assert said in whys(found())["block_offering"]
    aws.answers["GetSpotPlacementScores"] = Refused("MaxConfigLimitExceeded")
    (offer, *_) = offers(found(), Spot)
    assert "repeat an earlier search, or try again tomorrow" in str(offer.score)


def test_credentials_that_expire_or_cannot_be_renewed_end_the_search(aws: Published) -> None:
    def expired() -> None:
        raise UnauthorizedSSOTokenError

    aws.answers["GetSpotPlacementScores"] = Refused("ExpiredToken", "The security token is expired")
    with pytest.raises(RefusedError, match="AWS refuses the credentials") as refused:
        found()
    assert "aws sso login" in refused.value.remedy
    with pytest.raises(RefusedError, match="no valid AWS credentials") as refused:
        ask("ec2:DescribeInstances", expired)
    assert "aws sso login" in refused.value.remedy


def test_every_region_is_asked_for_itself_and_spot_is_offered_in_the_networks_zones_at_home(aws: Published) -> None:
    findings = found(None, "us-east-1", "us-west-2")
    asked = {(name, region) for name, region, _ in aws.requests}
    assert asked == {(name, region) for name in ALL for region in ("us-east-1", "us-west-2")}
    (far,) = [one for one in findings.offers if isinstance(one.offer, OnDemand) and one.offer.region == "us-west-2"]
    assert far.cost == (None, None)
    assert far.zones[0].startswith("us-west-2")
    zones = {one.zone for one in offers(findings, Spot)}
    assert {one for one in zones if one.startswith("us-east-1")} == {"us-east-1a", "us-east-1b", "us-east-1c"}
    assert any(one.startswith("us-west-2") for one in zones)


def test_a_region_without_the_type_offers_none_and_blocks_that_are_not_sold_are_not_asked_for(aws: Published) -> None:
    assert whys(found(need("t4")))["block_offering"] == "not sold for g4dn"
    assert aws.asked("DescribeCapacityBlockOfferings") == []
    aws.answers["DescribeInstanceTypeOfferings"] = {"InstanceTypeOfferings": []}
    said = whys(found())
    assert said["on_demand"] == said["spot"] == "no zone offers p5.48xlarge to this account"
