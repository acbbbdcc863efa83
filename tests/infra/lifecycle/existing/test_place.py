"""A stack that is up stays in its VPC and its cluster: each change between its own and existing ones is refused, against moto."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from infra.lifecycle.existing.place import Place, moves, read_place
from infra.lifecycle.preflight.checks import problems
from infra.lifecycle.stack.stage import read_account
from infra.spec.names import STACK_TAG
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.existing.network import ACCOUNT, account
from tests.infra.lifecycle.preflight.test_checks import case
from tests.infra.spec.samples import Tree, changed, dev_sections
from tests.infra.spec.test_existing import CLUSTER, VPC, example

OTHER_VPC = "vpc-0fffffffffffffff0"
OURS = "ray-train-platform/place"


def settings(environment: str, changes: Tree | None = None) -> StackSettings:
    """An environment named `place`: the dev sample with a network of its own, or one of the documentation's examples."""
    sections = dev_sections() if environment == "own" else example(environment)
    named = {"environment.name": "place", "aws.allowed_accounts": [ACCOUNT]}
    return from_mapping(changed(sections, {**named, **(changes or {})}), file="sample")


@pytest.fixture
def session() -> Iterator[boto3.Session]:
    with account() as one:
        yield one


def tags(kind: str, **values: str) -> list[Tree]:
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in values.items()]}]


def make_stack(session: boto3.Session, *, makes_vpc: bool, cluster: str = "rtp-place") -> str:
    """A VPC, with a security group and a node of the stack; returns the VPC's ID."""
    ec2, ours = session.client("ec2"), {STACK_TAG: OURS}
    made = ec2.create_vpc(CidrBlock="10.40.0.0/16", TagSpecifications=tags("vpc", **ours) if makes_vpc else [])
    vpc: str = made["Vpc"]["VpcId"]
    named = {"GroupName": "efa", "Description": "efa", "TagSpecifications": tags("security-group", **ours)}
    ec2.create_security_group(VpcId=vpc, **named)
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.40.0.0/20")["Subnet"]["SubnetId"]
    node = tags("instance", **ours, **{f"kubernetes.io/cluster/{cluster}": "owned"})
    ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=subnet, TagSpecifications=node)
    return vpc


def make_cluster(session: boto3.Session, name: str, **values: str) -> None:
    where = {"subnetIds": ["subnet-1", "subnet-2"]}
    role = f"arn:aws:iam::{ACCOUNT}:role/eks"
    session.client("eks").create_cluster(name=name, roleArn=role, resourcesVpcConfig=where, tags=values)


def answers(session: boto3.Session, one: StackSettings) -> list[str]:
    owner = read_account(one, load_release(), session).cluster_owner
    return [f"{message} | {remedy}" for message, remedy in moves(one, read_place(one, session), owner=owner)]


def test_before_the_first_update_a_stack_may_go_anywhere(session: boto3.Session) -> None:
    for environment in ("own", "existing-vpc", "existing-cluster"):
        one = settings(environment)
        assert read_place(one, session) == Place(made_vpcs={}, vpcs=frozenset(), clusters=frozenset())
        assert answers(session, one) == []


def test_a_stack_that_made_its_vpc_stays_there(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=True)
    make_cluster(session, "rtp-place", **{STACK_TAG: OURS})
    own = {"network.cidr": "10.40.0.0/16"}
    assert answers(session, settings("own", own)) == []
    (told,) = answers(session, settings("own", {"network.cidr": "10.44.0.0/16"}))
    assert told.startswith(
        f"stack place has made VPC {vpc} with the range 10.40.0.0/16, and network.cidr is 10.44.0.0/16"
    )
    (told,) = answers(session, settings("existing-vpc"))
    assert told.startswith(f"stack place has made VPC {vpc}, and network.existing.vpc_id is vpc-0a1b2c3d4e5f60718")
    assert "an update would delete that VPC" in told
    (told,) = answers(session, settings("existing-vpc", {f"{VPC}.vpc_id": vpc}))
    assert f"VPC {vpc}, and network.existing.vpc_id is {vpc}: an update would delete that VPC" in told
    assert read_place(settings_of("prod"), session).vpcs == frozenset(), "another stack"
    one = case(sections=changed(example("existing-vpc"), {"environment.name": "place"}))
    said = f"the stack stays where it is: stack place has made VPC {vpc}"
    assert any(str(problem).startswith(said) for problem in problems(one))


@pytest.mark.parametrize(
    ("environment", "cluster", "other"),
    [("existing-vpc", "rtp-place", "existing-cluster"), ("existing-cluster", "shared", "existing-vpc")],
)
def test_a_stack_in_an_existing_vpc_stays(session: boto3.Session, environment: str, cluster: str, other: str) -> None:
    vpc = make_stack(session, makes_vpc=False, cluster=cluster)
    make_cluster(session, cluster, **({STACK_TAG: OURS} if cluster == "rtp-place" else {}))
    assert answers(session, settings(environment, {f"{VPC}.vpc_id": vpc})) == []
    told = answers(session, settings(environment, {f"{VPC}.vpc_id": OTHER_VPC}))
    assert told[0].startswith(f"stack place is in VPC {vpc}, and network.existing.vpc_id is {OTHER_VPC}")
    told = answers(session, settings("own"))
    assert told[0].startswith(f"stack place is in the existing VPC {vpc}, and the settings have no network.existing")
    wanted = {"rtp-place": "shared", "shared": "rtp-place"}[cluster]
    (left,) = answers(session, settings(other, {f"{VPC}.vpc_id": vpc}))
    assert left.startswith(f"the nodes of stack place are in cluster {cluster}, the settings say {wanted}")


def test_nodes_that_are_gone_keep_nobody(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=False, cluster="gone")
    one = settings("existing-cluster", {f"{VPC}.vpc_id": vpc})
    ec2 = session.client("ec2")
    found = [node for group in ec2.describe_instances()["Reservations"] for node in group["Instances"]]
    ec2.terminate_instances(InstanceIds=[node["InstanceId"] for node in found])
    assert answers(session, one) == []


def test_a_cluster_of_a_stack_is_no_existing_one_and_a_new_one_has_a_name_of_its_own(session: boto3.Session) -> None:
    for owner in (OURS, "ray-train-platform/other"):
        name = f"rtp-{owner.rpartition('/')[2]}-made"
        make_cluster(session, name, **{STACK_TAG: owner})
        (told,) = answers(session, settings("existing-cluster", {f"{CLUSTER}.name": name}))
        assert told.startswith(f"cluster {name} belongs to stack {owner}, which deletes it when it is destroyed")
    make_cluster(session, "rtp-place")
    (told,) = answers(session, settings("own"))
    assert told.startswith("the account has a cluster rtp-place that is not the stack's | choose another environment")
