"""The preflight of an existing VPC against moto: each defect is planted, and found with the thing, the rule and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn

import boto3
import pytest
from botocore.exceptions import ClientError

from infra.lifecycle.existing.vpc import Route, Vpc, read_vpc
from infra.lifecycle.existing.vpc_rules import vpc_notes, vpc_problems
from infra.lifecycle.preflight.checks import problems
from infra.spec.names import STACK_TAG, stack_tag
from infra.spec.settings import StackSettings
from infra.spec.settings.addresses import node_addresses
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.existing.network import ACCOUNT, PUBLIC_RANGE, RANGES, Network, account, make_network
from tests.infra.lifecycle.preflight.test_checks import case
from tests.infra.spec.samples import SINGLE_SIGN_ON, Tree
from tests.infra.spec.test_existing import VPC

A, B = RANGES


@pytest.fixture(scope="module")
def session() -> Iterator[boto3.Session]:
    with account() as one:
        yield one


@pytest.fixture
def found(session: boto3.Session) -> Network:
    return make_network(session)


def answers(found: Network, settings: StackSettings | None = None) -> list[str]:
    settings = settings or found.settings()
    return [f"{message} | {remedy}" for message, remedy in vpc_problems(settings, read_vpc(settings, found.session))]


def notes(found: Network, changes: Tree | None = None) -> list[str]:
    settings = found.settings(changes)
    return [*vpc_notes(settings, read_vpc(settings, found.session))]


def changed_subnet(found: Network, settings: StackSettings, **changes: Route | int) -> Vpc:
    """The facts about the VPC, with others about the subnet of the first zone."""
    vpc = read_vpc(settings, found.session)
    assert vpc is not None
    id_ = found.subnets[A]
    return replace(vpc, subnets={**vpc.subnets, id_: replace(vpc.subnets[id_], **changes)})  # type: ignore[arg-type]


def test_a_vpc_that_suits_the_platform_or_is_its_own_has_no_problem_and_no_note(found: Network) -> None:
    assert answers(found) == []
    assert notes(found) == []
    settings = settings_of("dev")
    assert read_vpc(settings, None) is None
    assert [*vpc_problems(settings, None), *vpc_notes(settings, None)] == []


def without_names(option: str) -> Callable[[Network], None]:
    def plant(found: Network) -> None:
        found.ec2.modify_vpc_attribute(VpcId=found.vpc_id, **{option: {"Value": False}})

    return plant


def another_range(found: Network) -> None:
    found.ec2.associate_vpc_cidr_block(VpcId=found.vpc_id, CidrBlock="10.41.0.0/16")


def wrong_zone(found: Network) -> Tree:
    id_ = found.make_subnet("100.64.128.0/18", zone="us-east-1c")
    return {f"{VPC}.private_subnets.{A}": {"id": id_, "cidr": "100.64.128.0/18"}}


def public(found: Network) -> None:
    found.drop_default_route(B)
    found.ec2.create_route(RouteTableId=found.tables[B], DestinationCidrBlock="0.0.0.0/0", GatewayId=found.internet_id)


def public_without_a_gateway(found: Network) -> Tree:
    """Two subnets for load balancers: the one that is public, and a private one."""
    private = found.make_subnet("10.40.1.0/24", zone=B)
    found.ec2.associate_route_table(RouteTableId=found.tables[B], SubnetId=private)
    table = found.ec2.create_route_table(VpcId=found.vpc_id)["RouteTable"]["RouteTableId"]
    found.ec2.associate_route_table(RouteTableId=table, SubnetId=found.public_id)
    found.ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=found.internet_id)
    public = {A: {"id": found.public_id, "cidr": PUBLIC_RANGE}, B: {"id": private, "cidr": "10.40.1.0/24"}}
    return {f"{VPC}.public_subnets": public}


def few_addresses(found: Network) -> Tree:
    """Only the addresses that AWS counts as free are missing: the range is large enough."""
    id_ = found.make_subnet("100.64.128.0/22")
    found.ec2.associate_route_table(RouteTableId=found.tables[A], SubnetId=id_)
    for _ in range(100):
        found.ec2.create_network_interface(SubnetId=id_)
    return {f"{VPC}.private_subnets.{A}": {"id": id_, "cidr": "100.64.128.0/22"}, "gpu_groups.0.max_size": 6}


NAME, OTHER = "rtp-existing-vpc", "ray-train-platform/other"
PLANTED: tuple[tuple[Callable[[Network], Tree | None], str], ...] = (
    (another_range, "set network.existing.cidrs: [10.40.0.0/16, 10.41.0.0/16, 100.64.0.0/16]"),
    (without_names("EnableDnsSupport"), "has enable-dns-support off"),
    (without_names("EnableDnsHostnames"), "--enable-dns-hostnames"),
    (wrong_zone, "is in us-east-1c | name it below us-east-1c, or another subnet here"),
    (lambda found: found.drop_default_route(B), "no endpoint with private DNS for ec2, ecr.api, ecr.dkr, sts"),
    (public, "is public: the default route of its route table"),
    (public_without_a_gateway, f"{VPC}.public_subnets.{B}: subnet subnet-"),
    (few_addresses, "free addresses, the groups at max_size need"),
    (lambda found: found.tag(found.vpc_id, STACK_TAG, OTHER), f"belongs to stack {OTHER}, which deletes it"),
    (lambda found: found.tag(found.subnets[A], f"kubernetes.io/cluster/{NAME}", "owned"), f"another cluster {NAME}"),
)


def test_a_planted_defect_is_found(session: boto3.Session) -> None:
    for plant, expected in PLANTED:
        found = make_network(session)
        told = answers(found, found.settings(plant(found)))
        assert any(expected in one for one in told), told


def test_settings_that_name_no_such_vpc_subnet_or_range_are_refused(found: Network) -> None:
    subnet = f"{VPC}.private_subnets.{A}"
    for setting, value, expected in (
        (f"{VPC}.vpc_id", "vpc-0123456789abcdef0", "vpc_id: the account has no VPC vpc-0123456789abcdef0 in us-east-1"),
        (f"{subnet}.id", "subnet-0123456789abcdef0", f"{subnet}: the account has no subnet subnet-0123456789abcdef0"),
        (f"{subnet}.cidr", "100.64.128.0/18", "has 100.64.0.0/18, the settings 100.64.128.0/18 | set cidr: 100.64.0.0"),
    ):
        told = answers(found, found.settings({setting: value}))
        assert any(expected in one for one in told), told


def test_a_subnet_of_another_vpc_has_no_other_problem(found: Network) -> None:
    other = found.ec2.create_vpc(CidrBlock="100.64.0.0/16")["Vpc"]["VpcId"]
    id_ = found.make_subnet(RANGES[A], vpc_id=other)
    (told,) = answers(found, found.settings({f"{VPC}.private_subnets.{A}.id": id_}))
    assert f"not in {found.vpc_id} | name a subnet of the VPC" in told


def test_a_route_whose_gateway_is_gone_is_named_and_the_last_free_address_counts(found: Network) -> None:
    """Moto keeps such a route active, so the fact is changed."""
    settings = found.settings()
    gone = Route(target="nat-0123456789abcdef0", is_blackhole=True)
    ((message, remedy),) = vpc_problems(settings, changed_subnet(found, settings, default_route=gone))
    assert "leads to nat-0123456789abcdef0, which is gone" in message
    assert remedy == "correct the route"
    settings = found.settings()
    for free in (0, -1):
        vpc = changed_subnet(found, settings, free=node_addresses(settings)[A] + 32 + free)
        assert ([*vpc_problems(settings, vpc)] == []) is (free == 0)


def test_a_closed_subnet_needs_every_endpoint_and_a_mirror(found: Network) -> None:
    found.drop_default_route(B)
    closed = found.settings({"mirrors": {"charts": "oci://mirror.example/charts", "images": "mirror.example/images"}})
    (told,) = answers(found, closed)
    missing = told.partition(" for ")[2].partition(" | ")[0].split(", ")
    for service in missing:
        found.add_endpoint(service)
    assert answers(found, closed) == []
    (told,) = answers(found)
    assert "images come from public registries" in told


def test_the_addresses_of_the_stacks_own_nodes_are_not_needed_twice(found: Network) -> None:
    settings = found.settings()
    spec = {"ResourceType": "instance", "Tags": [{"Key": STACK_TAG, "Value": stack_tag(settings)}]}
    for count, specs in ((2, [spec]), (1, [])):
        size = {"MinCount": count, "MaxCount": count, "SubnetId": found.subnets[A]}
        found.ec2.run_instances(ImageId="ami-12c6146b", **size, TagSpecifications=specs)
    vpc = read_vpc(settings, found.session)
    assert vpc is not None
    assert vpc.subnets[found.subnets[A]].ours == 2
    assert vpc.subnets[found.subnets[B]].ours == 0


def test_missing_tags_and_a_missing_gateway_endpoint_for_s3_are_notes(found: Network) -> None:
    certificate = SINGLE_SIGN_ON["certificate_arn"].replace("111122223333", ACCOUNT)
    sso = {**SINGLE_SIGN_ON, "client_cidrs": ["10.40.0.0/16"], "certificate_arn": certificate}
    (note,) = notes(found, {"single_sign_on": sso})  # a load balancer is made
    assert "kubernetes.io/role/internal-elb: 1" in note
    assert found.subnets[A] in note
    ours = [{"Name": "vpc-id", "Values": [found.vpc_id]}]
    (endpoint,) = found.ec2.describe_vpc_endpoints(Filters=ours)["VpcEndpoints"]
    found.ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint["VpcEndpointId"]])
    assert answers(found) == []
    first, second = notes(found)
    assert f"subnet {found.subnets[A]} of {A} has no route to a gateway endpoint for S3" in first
    assert found.subnets[B] in second


def test_the_preflight_names_the_problem_or_a_refused_request(found: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "DescribeVpcs")

    found.drop_default_route(B)
    told = [str(one) for one in problems(case(sections=found.sections())) if "existing vpc" in one.check]
    assert len(told) == 2
    assert all(one.startswith("the existing vpc fits the platform: subnet ") for one in told)
    monkeypatch.setattr("infra.lifecycle.existing.vpc.pages", refuse)
    (refused,) = [one for one in problems(case(sections=found.sections())) if "existing vpc" in one.check]
    assert "UnauthorizedOperation" in refused.message
